"""Credentials are hidden in every place, and nothing else is."""

from __future__ import annotations

import json
import string
import time
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsp_gym.errors import ConfigError, DspGymError, FlinkError
from dsp_gym.redaction import HIDDEN, is_plain, redacted, redacted_values

SECRETS = st.text(string.ascii_letters + string.digits + "-._~!$'()*+,;:@/?#%", min_size=1).map(
    lambda text: "k9" + quote(text, safe="-._~!$'()*+,;:@") + "9k"
)
URLS = st.builds(
    lambda scheme, user, secret, rest: (secret, f"{scheme}://{user}:{secret}@{rest}"),
    st.sampled_from(["http", "https", "postgresql+psycopg2", "s3"]),
    st.sampled_from(["", "me", "a.b@c"]),
    SECRETS,
    st.sampled_from(["prometheus", "[::1]:9090", "p.monitoring:9090/api/v1/query?query=up"]),
)
OPTIONS = st.builds(
    lambda name, secret: (secret, f"https://bucket/x?a=1&{name}={quote(secret, safe='')}&z=2"),
    st.sampled_from(["token", "access_token", "password", "X-Amz-Signature", "api_key", "sig"]),
    st.text(string.ascii_letters + string.digits, min_size=6),
)


@given(given_=URLS | OPTIONS, before=st.sampled_from(["", "at ", '"', "(", "'"]))
def test_a_secret_of_an_address_occurs_in_no_text(given_: tuple[str, str], before: str) -> None:
    secret, url = given_
    text = f"{before}{url} did not answer"
    config = {"where": {"prometheus_url": url, "others": [url]}, "n": 1.0, "none": None}
    error = FlinkError(text, api="prometheus", value=url, remedy=f"Open {url}.")
    told = [
        redacted(text),
        redacted(json.dumps(config)),
        json.dumps(redacted_values(config)),
        str(error),
        repr(error),
    ]
    assert json.loads(told[1])["n"] == 1.0
    for each in told:
        assert secret not in each
        assert secret[:6] not in each
        assert HIDDEN in each
    cut = str(ConfigError("is no URL", key="where", value="x" * 90 + url))  # after 120 characters
    assert secret[:6] not in cut


@pytest.mark.parametrize(
    "text",
    [
        "http://prometheus:9090/api/v1/query?query=sum(rate(x[1m]))&time=3",
        "mail to me@example.org",
        "parallelism=3&level=2",
        '{"reason": "a basic rule"}',
        "models:/q11@champion",
        "the token cannot be read: No such file",
        "its token: expired since yesterday",
        '{"tokens": 5, "token_file": "/run/token", "token": null, "max_tokens": 3}',
        "give a password_file, or --token-file /run/token",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


JAAS = 'org.apache.kafka.PlainLoginModule required username="me" password="{}";'
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.hunter2"
SPELLINGS = {
    "password=hunter2": "password=***",
    "password=hun;ter2,x&#hunter2<hunter2": "password=***",
    'password=a"hunter2': "password=***",
    'password="hunter2 hunter2;" x': 'password="***" x',
    "password='hunter2 \"hunter2' x": "password='***' x",
    'password="a\\"hunter2" x': 'password="***" x',
    'x password="hunter2': 'x password="***',
    "ssl.keystore.password = hunter2": "ssl.keystore.password = ***",
    "AWS_SECRET_ACCESS_KEY=hunter2": "AWS_SECRET_ACCESS_KEY=***",
    "PGPASSWORD=hunter2 psql": "PGPASSWORD=*** psql",
    "s3.secret-key: hunter2": "s3.secret-key: ***",
    "fs.azure.account.key.x.blob.core.windows.net: hunter2":
        "fs.azure.account.key.x.blob.core.windows.net: ***",
    "basic.auth.user.info=me:hunter2": "basic.auth.user.info=***",
    "token: hunter2": "token: ***",
    JAAS.format("hunter2;x y"): JAAS.format("***"),
    "jdbc:postgresql://h/db?user=a&password=k@hunter2:w/o#d": "jdbc:postgresql://***",
    '\\"jdbc:mysql://h/db?password=k@hunter2\\" failed': '\\"jdbc:mysql://***\\" failed',
    "jdbc:postgresql://h/db?user=a&password=hunter2#hunter2&ssl=true":
        "jdbc:postgresql://h/db?user=a&password=***&ssl=true",
    "jdbc:mysql://me:hunter2@h/db": "jdbc:mysql://***@h/db",
    "jdbc:oracle:thin:scott/hunter2@//h:1521/x": "jdbc:oracle:thin:***@//h:1521/x",
    "jdbc:sqlserver://h;password={hunter2;b hunter2};encrypt=true":
        "jdbc:sqlserver://h;password=***;encrypt=true",
    "Authorization: Token hunter2": "Authorization: Token ***",
    "Authorization: hunter2": "Authorization: ***",
    "{'Authorization': 'Token hunter2'}": "{'Authorization': '***'}",
    "X-Api-Key: hunter2": "X-Api-Key: ***",
    "PRIVATE-TOKEN: hunter2": "PRIVATE-TOKEN: ***",
    f"with {JWT}, refused": "with ***, refused",
    "--db.password hunter2 --rate 3": "--db.password *** --rate 3",
    '["--db.password", "hunter2", "--rate", "3"]': '["--db.password", "***", "--rate", "3"]',
    "RestAccount(password='hunter2', user='me')": "RestAccount(password='***', user='me')",
}  # fmt: skip


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_secret_is_hidden_however_it_is_spelled(text: str) -> None:
    assert redacted(text) == SPELLINGS[text]
    assert not is_plain(text)
    assert "hunter2" not in json.dumps(redacted_values({"said": [text]}))


ODD = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1).map(
    lambda text: f"k9{text}9k"
)


@given(secret=ODD, name=st.sampled_from(["password", "client_secret", "api-key", "token"]))
def test_json_stays_json_and_holds_no_secret_at_any_depth(secret: str, name: str) -> None:
    text = json.dumps({name: secret, "n": 1, "none": None, "list": [{name: secret}]})
    for _ in range(4):
        hidden = redacted(text)
        assert "k9" not in hidden
        assert "9k" not in hidden
        found: Any = hidden
        while isinstance(found, str):
            found = json.loads(found)
        assert found == {name: HIDDEN, "n": 1, "none": None, "list": [{name: HIDDEN}]}
        text = json.dumps(text)


@given(secret=ODD)
def test_a_quoted_password_is_hidden_whatever_is_in_it(secret: str) -> None:
    escaped = secret.replace("\\", "\\\\").replace('"', '\\"')
    line = f'login required username="me" password="{escaped}"; then'
    assert redacted(line) == 'login required username="me" password="***"; then'
    told = redacted(json.dumps({"said": line, "n": 1}))
    assert json.loads(told) == {
        "said": 'login required username="me" password="***"; then', "n": 1,
    }  # fmt: skip


def test_values_below_the_name_of_a_secret_are_hidden() -> None:
    body = {
        "arguments": {"db.password": "hunter2", "rate": "3"}, "token": "hunter2", "tokens": 5,
        "command": ["--token", "hunter2", "--password", "--rate", "3"], "secret": 7,
    }  # fmt: skip
    assert redacted_values(body) == {
        "arguments": {"db.password": "***", "rate": "3"}, "token": "***", "tokens": 5,
        "command": ["--token", "***", "--password", "--rate", "3"], "secret": 7,
    }  # fmt: skip


@pytest.mark.parametrize("part", [
    "password=", 'password="', "password={", "password=\\", '"token": \\', "eyJ", "eyJaaaaaaaaaa.",
    "jdbc:oracle:", "--password ", "\\", '\\"', "secret: '", "account.key.",
])  # fmt: skip
def test_named_secrets_are_hidden_in_time_in_proportion_to_the_text(part: str) -> None:
    begun = time.thread_time()
    redacted("token=x " + part * (2**18 // len(part)))
    assert time.thread_time() - begun < 2.0  # 0.1 s; a minute where time grows with the square


def test_a_token_in_a_header_is_hidden() -> None:
    assert redacted("Authorization: Bearer 0123456789abcdef") == "Authorization: Bearer ***"


def test_an_error_keeps_its_parts() -> None:
    error = DspGymError("no answer from http://a:b@c/d", remedy="Try http://a:b@c/d.")
    assert error.message == "no answer from http://***@c/d"
    assert error.remedy == "Try http://***@c/d."
