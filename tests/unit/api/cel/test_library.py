# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' functions, as expressions see them."""

from __future__ import annotations

import pytest

from handfast.api.cel import engine, tagged_values

TRUE = """
[1, 2, 2].isSorted() && !['b', 'a'].isSorted() && [].isSorted()
[1, 2].sum() == 3 && [0.5, 1.0].sum() == 1.5
[3, 1, 2].min() == 1 && ['a', 'c', 'b'].max() == 'c'
[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1 && [dyn(true)].indexOf(1) == -1
'abc'.indexOf('c') == 2
sets.contains([1, 2], [2]) && sets.equivalent([1, 1], [1]) && sets.intersects([1], [1, 2]) && !sets.intersects([1], [2])
'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''
'a1b2'.findAll('[0-9]') == ['1', '2'] && 'a1b2'.findAll('[0-9]', 1) == ['1']
isQuantity('1Gi') && !isQuantity('x') && quantity('1') == quantity('1000m') && quantity('0') == quantity('0.0')
quantity('1').isLessThan(quantity('1500m')) && quantity('2k').isGreaterThan(quantity('1')) && quantity('1').compareTo(quantity('1')) == 0
quantity('1').add(quantity('1')).sub(1).asInteger() == 1 && quantity('-1').sign() == -1 && quantity('5').isInteger()
quantity('1500m').asApproximateFloat() == 1.5 && !quantity('1500m').isInteger()
isSemver('1.2.3') && !isSemver('1.2') && semver('1.2.3').major() == 1 && semver('1.2.3-a').patch() == 3
semver('1.2.3').isGreaterThan(semver('1.2.3-rc.1')) && semver('1.0.0-a.2').isLessThan(semver('1.0.0-a.10'))
isIP('10.0.0.1') && !isIP('10.0.0') && !isIP('fe80::1%eth0') && !isIP('::ffff:1.2.3.4') && ip('::1').family() == 6
ip('0.0.0.0').isUnspecified() && ip('127.0.0.1').isLoopback() && ip('224.0.0.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()
ip('169.254.1.1').isLinkLocalUnicast() && ip('10.0.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()
ip.isCanonical('::1') && !ip.isCanonical('0::1')
isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/99') && !isCIDR('10.0.0.0/255.0.0.0')
cidr('10.0.0.0/8').containsIP('10.1.1.1') && !cidr('10.0.0.0/8').containsIP(ip('11.1.1.1'))
cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16')) && !cidr('10.0.0.0/8').containsCIDR('::/0')
cidr('10.1.0.1/8').ip() == ip('10.1.0.1') && cidr('10.1.0.1/8').masked() == cidr('10.0.0.0/8') && cidr('10.0.0.0/8').prefixLength() == 8
isURL('https://a/b') && !isURL('a b') && !isURL('https://a:b/') && isURL('/a')
url('https://u@h:80/p%20q?x=1&x=2').getHost() == 'h:80' && url('https://h:80/').getHostname() == 'h' && url('https://h:80/').getPort() == '80'
url('https://h/p%20q?x=1&x=2').getScheme() == 'https' && url('https://h/p%20q').getEscapedPath() == '/p%20q' && url('/?x=1&x=2').getQuery()['x'] == ['1', '2']
url('https:///x').getHostname() == '' && url('https://h/').getPort() == ''
'a,b'.split(',').map(x, x.upperAscii()) == ['A', 'B'] && 'a-b'.replace('-', '').size() == 2 && ' a '.trim() == 'a' && '%d'.format([1]) == '1'
[1, 2].exists_one(x, x == 1) && optional.of(1).orValue(2) == 1 && duration('1h') > duration('1m') && type(1) == int
""".strip().splitlines()


def evaluate(text: str, **data):
    return engine.program(text, "self").evaluate(engine.environment("self").values({"self": None, **data}))


@pytest.mark.parametrize("text", TRUE)
def test_functions_of_kubernetes(text):
    assert evaluate(text) is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, dyn('a')].isSorted()", "no such overload"),
        ("[dyn('a')].sum() == 1", "no such overload: sum() takes numbers"),
        ("[].min() == 1", "min called on empty list"),
        ("quantity('x') == quantity('1')", "quantities must match"),
        ("quantity('1.5').asInteger() == 1", "cannot convert value to integer"),
        ("semver('1') == semver('1')", "not a semantic version"),
        ("{'semver': 'x'}.compareTo(semver('1.0.0')) == 1", "no such overload: this is no version"),
        ("{'a': 'x'}.sign() == 1", "no such overload: this is no quantity"),
        ("ip('x') == ip('x')", "IP Address 'x' parse error"),
        ("cidr('x') == cidr('x')", "network address parse error"),
        ("url('https://a:b') == url('x')", "URL parse error"),
        ("'a'.find('(') == ''", "RE2 does not take this pattern"),
        ("'a'.find(self) == ''", "a pattern has at most 4096 characters"),
    ],
)
def test_what_they_do_not_take_is_an_error(text, said):
    with pytest.raises(engine.NotEvaluated) as caught:
        evaluate(text, self="a" * 5000)
    assert caught.value.message.startswith(said)


def test_sets_are_compared_as_far_as_that_is_cheap():
    with pytest.raises(engine.NotEvaluated, match="up to 1000 elements"):
        evaluate("sets.contains(self, self)", self=list(range(1001)))


@pytest.mark.parametrize("text", ["9e999999", "-9e999999", "1e-999999", "Infinity", "NaN"])
def test_a_short_text_is_no_megabyte_of_digits(text):
    for value in (text, {"quantity": text}):
        with pytest.raises(ValueError, match="at most 2048 digits"):
            tagged_values.add({"quantity": "1"}, value)
    assert tagged_values.add(tagged_values.quantity("1e900"), "1e900") == {"quantity": "2" + "0" * 900}
