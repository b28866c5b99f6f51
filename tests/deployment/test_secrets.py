import pytest

from gym_ray.deployment.secrets import MASK, is_secret_key, mask_secrets


@pytest.mark.parametrize(
    "key",
    [
        "policy_api_key",
        "apiKey",
        "OPENAI_API_KEY",
        "hf_token",
        "token",
        "Authorization",
        "db_password",
        "client_secret",
        "aws_secret_access_key",
        "X-Auth-Token",
        "private_key",
        "credentials",
    ],
)
def test_keys_of_credentials_are_recognised(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "max_output_tokens",
        "token_id_capture",
        "sort_key",
        "key_metrics",
        "keys",
        "host",
        "monkey",
        "tokenizer",
        "",
        "42",
    ],
)
def test_other_keys_are_not(key: str) -> None:
    assert not is_secret_key(key)


def test_credentials_are_masked_at_any_depth() -> None:
    config = {"judge": [{"api_key": "k", "url": "http://h"}], "headers": {"Authorization": {"value": ["a", "b"]}}}
    assert mask_secrets(config) == {
        "judge": [{"api_key": MASK, "url": "http://h"}],
        "headers": {"Authorization": {"value": [MASK, MASK]}},
    }


def test_a_credential_that_is_not_set_is_seen_to_be_missing() -> None:
    assert mask_secrets({"api_key": None, "token": ""}) == {"api_key": None, "token": ""}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pass@host/v1", "https://***@host/v1"),
        ("http://host/v1?api_key=abc&n=2", "http://host/v1?api_key=***&n=2"),
        ("Bearer abcdef0123456789", "Bearer ***"),
        ("key sk-proj_0123456789abcdefghij.", "key ***."),
        ("mail me@example.org", "mail me@example.org"),
    ],
)
def test_credentials_inside_of_text_are_masked(text: str, shown: str) -> None:
    assert mask_secrets(text) == shown


def test_the_value_itself_is_not_changed() -> None:
    config = {"api_key": "k"}
    mask_secrets(config)
    assert config == {"api_key": "k"}
