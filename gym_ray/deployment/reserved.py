"""Top-level keys of a merged config that are neither server instances nor settings of a run. Source: protocol §1.4."""

from typing import Final

RESERVED_KEYS: Final = frozenset(
    {
        "config_paths",
        "entrypoint",
        "default_host",
        "head_server",
        "disallowed_ports",
        "head_server_deps",
        "python_version",
        "pip_install_verbose",
        "use_absolute_ip",
        "uv_pip_set_python",
        "skip_venv_if_present",
        "hf_token",
        "ray_head_node_address",
        "port_range_low",
        "port_range_high",
        "dry_run",
        "server_spinup_timeout_seconds",
        "model_endpoint_readiness_timeout_seconds",
        "allow_openai_version_skew",
        "uv_cache_dir",
        "uv_lock_timeout_seconds",
        "uv_venv_dir",
        "results_dir",
        "cache_dir",
        "_inherit_from",
        "_copy",
        "nemo_gym_log_dir",
        "verbose",
        "json",
        "query",
        "observability_enabled",
        "model_call_capture_dir",
        "token_id_capture",
        "component_name",
        "skip_verification",
        "skip_verification_reward",
        "telemetry",
        "error_on_agent_without_environment_server",
    }
)

POLICY_KEYS: Final = frozenset({"policy_base_url", "policy_api_key", "policy_model_name"})
"""Not reserved, but every deployment with one model names it by these. Source: protocol §10.3."""
