"""Credentials are hidden in every place, and nothing else is."""

from __future__ import annotations

import json
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsp_gym.errors import ConfigError, DspGymError, FlinkError
from dsp_gym.redaction import HIDDEN, redacted, redacted_values

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
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


def test_a_token_in_a_header_is_hidden() -> None:
    assert redacted("Authorization: Bearer 0123456789abcdef") == "Authorization: Bearer ***"


def test_an_error_keeps_its_parts() -> None:
    error = DspGymError("no answer from http://a:b@c/d", remedy="Try http://a:b@c/d.")
    assert error.message == "no answer from http://***@c/d"
    assert error.remedy == "Try http://***@c/d."
