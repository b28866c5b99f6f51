"""The agent and resources servers of the example: healthy, and able to aggregate.

The environment servers play their episodes in-process, so nothing is ever sent to an agent's `/run`.
"""

from aiohttp import web

from gym_ray.example.json_http import add_health_routes, answer_aggregation, json_application, json_reply


def component_application(*, is_resources_server: bool) -> web.Application:
    """The routes of one agent or resources server."""
    application = json_application()
    add_health_routes(application)
    application.router.add_post("/aggregate_metrics", answer_aggregation)
    if is_resources_server:
        application.router.add_get("/reverify_mode", _reverify_mode)
    return application


async def _reverify_mode(_: web.Request) -> web.Response:
    return json_reply("unsupported")
