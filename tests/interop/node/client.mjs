// SPDX-License-Identifier: Apache-2.0
// What a program of @kubernetes/client-node does, in the namespace NAMESPACE of the cluster of KUBECONFIG.
// Each part prints one line of JSON; tests/interop/test_client_node.py says what must be in it.
import { pathToFileURL } from 'node:url';

const k8s = await import(pathToFileURL(process.env.CLIENT_NODE).href);
const { NAMESPACE: namespace, UNIQUE: unique } = process.env;
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const typed = (kind) => k8s.setHeaderOptions('Content-Type', kind);
const settings = (name, data) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace, labels: { own: '' } }, data });
const code = (promise) => promise.then(() => 200, (error) => error.code);
const say = (part, value) => console.log(JSON.stringify({ [part]: value }));

async function until(look) {
  for (let turn = 0; turn < 300; turn += 1) {
    const answer = await look();
    if (answer) return answer;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error('not within 30 s');
}

// 1. every verb, and each patch
await core.createNamespacedConfigMap({ namespace, body: settings('one', { a: '1' }) });
const patch = (body, kind) => core.patchNamespacedConfigMap({ namespace, name: 'one', body }, typed(kind));
await patch({ data: { b: '2' } }, k8s.PatchStrategy.MergePatch);
await patch({ data: { a: null } }, k8s.PatchStrategy.StrategicMergePatch);
const patched = await patch([{ op: 'add', path: '/data/c', value: '3' }], k8s.PatchStrategy.JsonPatch);
const replaced = await core.replaceNamespacedConfigMap({ namespace, name: 'one', body: { ...patched, data: { d: '4' } } });
say('verbs', {
  patched: patched.data,
  replaced: replaced.data,
  stale: await code(core.replaceNamespacedConfigMap({ namespace, name: 'one', body: patched })),
  listed: (await core.listNamespacedConfigMap({ namespace, labelSelector: 'own' })).items.map((each) => each.metadata.name),
  deleted: (await core.deleteNamespacedConfigMap({ namespace, name: 'one' })).status,
  gone: await code(core.readNamespacedConfigMap({ namespace, name: 'one' })),
});

// 2. a watch, and another from where it was
async function next(version) {
  return new Promise((resolve, reject) => {
    let controller;
    const seen = (type, found) => {
      resolve({ type, name: found.metadata.name, version: found.metadata.resourceVersion });
      controller?.abort();
    };
    new k8s.Watch(config)
      .watch(`/api/v1/namespaces/${namespace}/configmaps`, { resourceVersion: version, labelSelector: 'own', timeoutSeconds: 30 }, seen, reject)
      .then((opened) => { controller = opened; });
  });
}
const first = await core.createNamespacedConfigMap({ namespace, body: settings('first') });
await core.createNamespacedConfigMap({ namespace, body: settings('second') });
const added = await next(first.metadata.resourceVersion);
await core.deleteNamespacedConfigMap({ namespace, name: 'second' });
const removed = await next(added.version);
say('watch', [added.type, added.name, removed.type, removed.name]);

// 3. an informer
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, () => core.listNamespacedConfigMap({ namespace, labelSelector: 'own' }), 'own');
const heard = [];
informer.on('add', (each) => heard.push(`add ${each.metadata.name}`));
informer.on('delete', (each) => heard.push(`delete ${each.metadata.name}`));
await informer.start();
await core.createNamespacedConfigMap({ namespace, body: settings('third') });
await until(() => heard.includes('add third'));
await core.deleteNamespacedConfigMap({ namespace, name: 'third' });
await until(() => heard.includes('delete third'));
await informer.stop();
say('informer', heard);

// 4. apply, by the client that knows no kinds but those of discovery
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const apply = (manager, data, force = false) =>
  objects.patch(settings('shared', data), undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply);
await apply('mine', { a: '1', b: '1' });
say('apply', { refused: await code(apply('yours', { a: '2' })), forced: (await apply('yours', { a: '2' }, true)).data, left: (await apply('mine', {})).data });

// 5. custom resources
const extensions = config.makeApiClient(k8s.ApiextensionsV1Api);
const definition = JSON.parse(process.env.DEFINITION);
await extensions.createCustomResourceDefinition({ body: definition });
const customs = config.makeApiClient(k8s.CustomObjectsApi);
const place = { group: definition.spec.group, version: 'v1', namespace, plural: definition.spec.names.plural };
const custom = { apiVersion: `${place.group}/v1`, kind: definition.spec.names.kind, metadata: { name: 'one' }, spec: { size: 2 } };
const made = await until(() => customs.createNamespacedCustomObject({ ...place, body: custom }).catch((error) => { if (error.code !== 404) throw error; }));
await customs.patchNamespacedCustomObjectStatus({ ...place, name: 'one', body: { status: { size: 3 } } }, typed(k8s.PatchStrategy.MergePatch));
const scale = await customs.getNamespacedCustomObjectScale({ ...place, name: 'one' });
await extensions.deleteCustomResourceDefinition({ name: definition.metadata.name });
say('custom', { spec: made.spec, scale: [scale.spec.replicas, scale.status.replicas] });

// 6. a request is approved and signed
const certificates = config.makeApiClient(k8s.CertificatesV1Api);
const request = await certificates.createCertificateSigningRequest({ body: JSON.parse(process.env.REQUEST) });
request.status = { conditions: [{ type: 'Approved', status: 'True', reason: 'Node', message: 'by a test' }] };
await certificates.replaceCertificateSigningRequestApproval({ name: unique, body: request });
const signed = await until(async () => (await certificates.readCertificateSigningRequest({ name: unique })).status.certificate);
say('signed', Buffer.from(signed, 'base64').toString().split('\n')[0]);

// 7. a token of an account is reviewed, and logs in
const wanted = { namespace, name: 'default', body: { spec: { audiences: [] } } };
const { token } = (await core.createNamespacedServiceAccountToken(wanted)).status;
const review = await config.makeApiClient(k8s.AuthenticationV1Api).createTokenReview({ body: { spec: { token } } });
const other = new k8s.KubeConfig();
other.loadFromClusterAndUser(config.getCurrentCluster(), { name: 'account', token });
const who = await other.makeApiClient(k8s.AuthenticationV1Api).createSelfSubjectReview({ body: {} });
say('token', {
  reviewed: review.status.user.username,
  self: who.status.userInfo.username,
  secrets: await code(other.makeApiClient(k8s.CoreV1Api).listNamespacedSecret({ namespace })),
});

// 8. scale and eviction
const apps = config.makeApiClient(k8s.AppsV1Api);
await apps.createNamespacedDeployment({ namespace, body: JSON.parse(process.env.DEPLOYMENT) });
const scaled = await apps.patchNamespacedDeploymentScale({ namespace, name: 'web', body: { spec: { replicas: 5 } } }, typed(k8s.PatchStrategy.MergePatch));
await core.createNamespacedPod({ namespace, body: JSON.parse(process.env.POD) });
await core.createNamespacedPodEviction({ namespace, name: 'alone', body: { metadata: { name: 'alone' } } });
say('scale', { replicas: scaled.spec.replicas, pod: await code(core.readNamespacedPod({ namespace, name: 'alone' })) });
