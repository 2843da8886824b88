#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the vectors of this directory with OpenSSL (3.0.19 when they were made), so that what Python reads was written
# by another implementation. The keys are for tests only. Run it here; every run makes new keys.
set -eu

openssl dsaparam -genkey -noout 2048 | openssl pkcs8 -topk8 -nocrypt -out dsa.key.pem

ca="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500"
openssl req -x509 $ca -keyout sha1-ca.key -out sha1-ca.pem -subj /CN=sha1-root \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=clientAuth\n' > leaf.cnf
openssl req -new $ca -keyout sha1-leaf.key -out leaf.csr -subj /CN=jane
openssl x509 -req -sha1 -in leaf.csr -CA sha1-ca.pem -CAkey sha1-ca.key -days 36500 -extfile leaf.cnf -out sha1-leaf.pem

openssl req -new -sha1 -newkey rsa:2048 -nodes -keyout csr.key -out sha1.csr.pem -subj /CN=jane
openssl req -new -newkey rsa:2048 -nodes -keyout csr.key -out openssl.csr.pem -subj /O=dev/O=ops/CN=jane \
    -addext subjectAltName=DNS:jane.example,IP:192.0.2.7,URI:spiffe://example/jane,email:jane@example.org \
    -addext keyUsage=digitalSignature -addext extendedKeyUsage=clientAuth,1.2.3.4 \
    -addext basicConstraints=critical,CA:TRUE -addext nsComment=hello
rm -f sha1-ca.key sha1-leaf.key csr.key leaf.cnf leaf.csr sha1-ca.srl
