"""Names of certificates as Java writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from embedded_broker.security.subject import principal_name
from tests.embedded_broker.security.certificates import CLIENT_PRINCIPAL, Authority

# What java.security.cert.X509Certificate.getSubjectX500Principal().getName() gives, Java 17.
NAMES = {
    "plain": ([(NameOID.COMMON_NAME, "a b")], "CN=a b"),
    "escaped": ([(NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h=i#j')], 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
    "spaces": ([(NameOID.COMMON_NAME, "  x y ")], "CN=\\ \\ x y\\ "),
    "not ascii": ([(NameOID.COMMON_NAME, "Zoë 商店")], "CN=Zoë 商店"),
    "e-mail": ([(NameOID.EMAIL_ADDRESS, "a@b"), (NameOID.COMMON_NAME, "c")], "CN=c,1.2.840.113549.1.9.1=#1603614062"),
    "all keywords": (
        [
            (NameOID.DOMAIN_COMPONENT, "example"),
            (NameOID.COUNTRY_NAME, "CH"),
            (NameOID.STATE_OR_PROVINCE_NAME, "BE"),
            (NameOID.LOCALITY_NAME, "Bern"),
            (NameOID.STREET_ADDRESS, "One"),
            (NameOID.ORGANIZATION_NAME, "O"),
            (NameOID.USER_ID, "u"),
        ],
        "UID=u,O=O,STREET=One,L=Bern,ST=BE,C=CH,DC=example",
    ),
}


@pytest.mark.parametrize(("name", "expected"), NAMES.values(), ids=NAMES.keys())
def test_names(tmp_path: Path, name: list[tuple[x509.ObjectIdentifier, str]], expected: str) -> None:
    pem = Authority(tmp_path).sign("c", name).certificate.read_bytes()
    assert principal_name(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)) == expected


def test_the_name_used_elsewhere_and_every_cut_of_it(tmp_path: Path) -> None:
    pem = Authority(tmp_path).sign("c").certificate.read_bytes()
    der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    assert f"User:{principal_name(der)}" == CLIENT_PRINCIPAL
    for end in range(len(der)):
        with pytest.raises(ValueError, match=r"DER|empty|certificate"):
            principal_name(der[:end])
