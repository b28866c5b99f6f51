"""Every wire and file key that gym_ray reads or writes, spelled once.

Source: protocol §0.1 (row and result keys), §2 (requests and replies), §3 (aggregation), §7 (files).
"""

from typing import Final

# Rows and records
RESPONSES_CREATE_PARAMS: Final = "responses_create_params"
RESPONSE: Final = "response"
AGENT_REF: Final = "agent_ref"
NAME: Final = "name"
TASK_SOURCE: Final = "task_source"
SKILLS_REF: Final = "skills_ref"
REWARD: Final = "reward"
MASK_SAMPLE: Final = "mask_sample"
INSTANCE_CONFIG: Final = "instance_config"
USAGE: Final = "usage"
INCOMPLETE_DETAILS: Final = "incomplete_details"
ELAPSED_SECONDS: Final = "elapsed_seconds"
FAILURE_KIND: Final = "failure_kind"
FAILURE_REASON: Final = "failure_reason"
REUSE_CACHED_DELIVERABLE: Final = "reuse_cached_deliverable"
ERROR_MESSAGE: Final = "error_message"
ERROR: Final = "error"

# Tasks
TASK_ID: Final = "task_id"
PROBLEM_ID: Final = "problem_id"
INSTANCE_ID: Final = "instance_id"
TASKSET: Final = "taskset"
TASK_INPUT: Final = "task_input"

# Identity stamps of the runner
TASK_INDEX: Final = "_ng_task_index"
ROLLOUT_INDEX: Final = "_ng_rollout_index"
ATTEMPT_INDEX: Final = "_ng_attempt_index"
ROLLOUT_ID: Final = "_ng_rollout_id"
RUN_ID: Final = "_ng_run_id"
ENVIRONMENT_SERVER: Final = "_ng_environment_server"
RESULT_TYPE: Final = "_ng_result_type"
NG_TASK_ID: Final = "_ng_task_id"
SENDS: Final = "_ng_sends"

# Failure facts
FAILURE_PREFIX: Final = "_ng_failure_"
FAILURE_CLASS: Final = "_ng_failure_class"
FAILURE_TERMINAL: Final = "_ng_failure_terminal"
FAILURE_TYPE: Final = "_ng_failure_type"
FAILURE_MESSAGE: Final = "_ng_failure_message"
FAILURE_HTTP_STATUS: Final = "_ng_failure_http_status"
FAILURE_RESPONSE_BODY: Final = "_ng_failure_response_body"
FAILURE_STAGE: Final = "_ng_failure_stage"
FAILURE_PARTIAL_RESPONSE: Final = "_ng_failure_partial_response"
FAILURE_COUNTS_AS_ZERO: Final = "_ng_failure_counts_as_zero"
FAILURE_RECORD: Final = "_ng_failure_record"
FAILURE_JUDGE_ERROR: Final = "_ng_failure_judge_error"
FAILURE_SENDS: Final = "_ng_failure_sends"
FAILURE_TRIES: Final = "_ng_failure_tries"
NO_PERSIST: Final = "_ng_no_persist"
DISPATCH_DRAINED: Final = "_ng_dispatch_drained"
OMITTED_ROLLOUT: Final = "_ng_omitted_rollout"
UNROUTED_RUN_ERROR: Final = "_ng_unrouted_run_error"

# Enrichment
NG_PREFIX: Final = "_ng_"
TRAJECTORY: Final = "ng_trajectory"
MODEL_CALL_CAPTURE: Final = "ng_model_call_capture"
PERF: Final = "ng_perf"
AGENT_OBSERVATIONS: Final = "ng_agent_observations"

# Episode requests and replies
EPISODE_ID: Final = "episode_id"
EPISODE_ROLLOUT_ID: Final = "rollout_id"
EPISODE_ATTEMPT: Final = "attempt"
TASK: Final = "task"
RESULT: Final = "result"
FAILURE: Final = "failure"
TERMINAL: Final = "terminal"
STAGE: Final = "stage"
PARTIAL_RESPONSE: Final = "partial_response"

# Aggregation
VERIFY_RESPONSES: Final = "verify_responses"
AGENT_METRICS: Final = "agent_metrics"
KEY_METRICS: Final = "key_metrics"
GROUP_LEVEL_METRICS: Final = "group_level_metrics"
REPEAT_LEVEL_METRICS: Final = "repeat_level_metrics"
PERF_SUMMARY: Final = "perf_summary"
AGGREGATION_ERROR: Final = "aggregation_error"

# Merged config of a deployment
HEAD_SERVER: Final = "head_server"
ENVIRONMENT_SERVERS: Final = "environment_servers"
RESPONSES_API_AGENTS: Final = "responses_api_agents"
RESOURCES_SERVERS: Final = "resources_servers"
RESPONSES_API_MODELS: Final = "responses_api_models"
AGENT_SERVER: Final = "agent_server"
RESOURCES_SERVER: Final = "resources_server"

# Failure classes that the runner itself assigns (protocol §2.6, §7.5)
AGENT_REQUEST_FAILED: Final = "agent_request_failed"
AGENT_RUN_ERROR: Final = "agent_run_error"
ENVIRONMENT_SERVER_FAILED: Final = "environment_server_failed"
CANCELLED: Final = "cancelled"
KILL_SHAPED: Final = "kill_shaped"

# Failure kinds of the transport (protocol §7.5)
TRANSPORT_UNREACHABLE: Final = "transport_unreachable"
TRANSPORT_LOCAL_RESOURCE: Final = "transport_local_resource"
TRANSPORT_PEER_DROP: Final = "transport_peer_drop"
TRANSPORT_TIMEOUT: Final = "transport_timeout"
