"""Plan and apply: all or none, twice without harm, with the problem's field named."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.touchpoints import Touchpoint
from libs.contracts.vocabulary import registered
from libs.service_kit.errors import Refused
from libs.service_kit.testing import outbox_events
from services.registry.domain import Target
from services.registry.tests.support import FIRST, SECOND, SKILL, Parts, Repository, in_table

HERE = Target("support.intent")


def changed(touchpoint: Touchpoint, **storage: object) -> Touchpoint:
    config = touchpoint.model_dump(mode="json")
    return Touchpoint.model_validate({**config, "storage": {**config["storage"], **storage}})


async def test_a_plan_changes_nothing(parts: Parts, in_git: Touchpoint) -> None:
    (planned,) = await parts.registration.plan([in_git])
    assert (planned.action, planned.revision) == ("create", 1)
    assert planned.live is not None
    assert planned.live.startswith("git:")
    assert await parts.rows("SELECT * FROM touchpoints") == []


async def test_the_text_in_git_becomes_the_first_live_version(
    parts: Parts, in_git: Touchpoint, repository: Repository
) -> None:
    await parts.register(in_git)
    live = await parts.live(HERE)
    assert live.version_ref == f"git:{repository.git('rev-parse', 'HEAD')}"
    assert [(part.path, part.text) for part in live.parts] == [(SKILL, FIRST)]


async def test_applying_twice_changes_and_says_nothing_more(parts: Parts, in_git: Touchpoint) -> None:
    for expected in ("create", "unchanged"):
        planned = await parts.registration.apply([in_git, in_table()], "ada")
        assert [each.action for each in planned] == [expected, expected]
    assert len(await outbox_events(parts.db, TouchpointRegisteredV1)) == 2
    assert await parts.kinds() == ["registered", "registered"]


async def test_an_update_names_its_fields_and_counts_the_revision(parts: Parts) -> None:
    await parts.register(in_table())
    wanted = in_table().model_copy(update={"owners": ("desk",)})
    (planned,) = await parts.registration.apply([wanted], "bob")
    assert (planned.action, planned.revision, planned.live) == ("update", 2, None)
    assert [change.field for change in planned.changes] == ["owners"]
    assert [event.data.revision for event in await outbox_events(parts.db, TouchpointRegisteredV1)] == [1, 2]


async def test_moving_the_prompt_makes_what_stands_there_live(
    parts: Parts, in_git: Touchpoint, repository: Repository
) -> None:
    await parts.register(in_git)
    repository.commit("prompts/other.md", SECOND)
    (planned,) = await parts.registration.apply([changed(in_git, paths=["prompts/other.md"])], "ada")
    assert planned.live is not None
    assert (await parts.live(HERE)).parts[0].text == SECOND
    assert await parts.kinds() == ["registered", "activated"]


@pytest.mark.parametrize(
    ("storage", "field", "word"),
    [
        ({"repository": "/etc"}, "storage.repository", "BURNISH_REPOSITORY_ROOTS"),
        ({"repository": "repos/desk"}, "storage.repository", "absolute"),
        ({"repository": "https://example.org/x.git"}, "storage.repository", "local path"),
        ({"branch": "release"}, "storage.branch", "main"),
        ({"paths": ["prompts/none.md"]}, "storage.paths", "Commit it first"),
        ({"paths": ["../../etc/passwd"]}, "storage.paths", "out of the repository"),
        ({"adapter": "inline"}, "storage.adapter", " and ".join(registered("adapters"))),
        ({"repository": None}, "storage.repository", "absolute path of the clone"),
        ({"paths": []}, "storage.paths", "`path`"),
        ({"adapter": "feed_prompts", "initial_text": "x"}, "storage.paths", "Leave out the paths"),
    ],
)
async def test_a_prompt_that_cannot_be_read_stops_the_whole_apply(
    parts: Parts, in_git: Touchpoint, storage: dict[str, object], field: str, word: str
) -> None:
    with pytest.raises(Refused) as no:
        await parts.registration.apply([in_table(), changed(in_git, **storage)], "ada")
    assert no.value.status == 422
    assert f"touchpoints[1].{field}" in no.value.detail
    assert word in no.value.detail
    assert await parts.rows("SELECT * FROM touchpoints") == []
    assert await outbox_events(parts.db) == []


async def test_a_link_out_of_the_allowed_folder_is_refused(
    parts: Parts, in_git: Touchpoint, repository: Repository, tmp_path: Path
) -> None:
    outside = Repository(tmp_path / "outside")
    outside.commit(SKILL, FIRST)
    (repository.root.parent / "link").symlink_to(outside.root)
    with pytest.raises(Refused, match="BURNISH_REPOSITORY_ROOTS"):
        await parts.registration.apply([changed(in_git, repository=str(repository.root.parent / "link"))], "ada")


@pytest.mark.parametrize(
    ("configuration", "field", "right"),
    [
        ({"signals": [{"scanner": "si_flag"}, {"scanner": "si_flags"}]}, "signals[1].scanner", "or si_flag"),
        ({"suite": {"task": "clasify"}}, "suite.task", "Use classify"),
        ({"suite": {"primary_metric": "acuracy"}}, "suite.primary_metric", "accuracy, "),
        ({"suite": {"metrics": ["accuracy", "f2"]}}, "suite.metrics[1]", "macro_f1"),
        ({"model": {"provider": "none"}}, "model.provider", "Use anthropic, offline, openai or tier"),
    ],
)
async def test_a_name_that_nothing_answers_to_is_refused_with_those_that_are(
    parts: Parts, configuration: dict[str, object], field: str, right: str
) -> None:
    wanted = Touchpoint.model_validate({**in_table().model_dump(mode="json"), **configuration})
    with pytest.raises(Refused) as no:
        await parts.registration.plan([wanted])
    assert f"touchpoints[0].{field}: " in no.value.detail
    assert right in no.value.detail


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ([in_table(text=None)], "touchpoints[0].storage.initial_text"),
        ([in_table(), in_table()], "touchpoints[1].id"),
        ([in_table("a"), in_table("b", scope="workspace")], "touchpoints[1].scope"),
    ],
)
async def test_what_cannot_be_registered_is_named(parts: Parts, wanted: list[Touchpoint], problem: str) -> None:
    await parts.register(in_table("b"))
    with pytest.raises(Refused) as no:
        await parts.registration.plan(wanted)
    assert problem in no.value.detail


async def test_an_inactive_touchpoint_needs_no_prompt_until_it_is_active(
    parts: Parts, in_git: Touchpoint, repository: Repository
) -> None:
    sleeping = changed(in_git, paths=["prompts/later.md"]).model_copy(update={"active": False})
    await parts.register(sleeping)
    assert await parts.kinds() == []
    repository.commit("prompts/later.md", SECOND)
    await parts.register(sleeping.model_copy(update={"active": True}))
    assert (await parts.live(HERE)).parts[0].text == SECOND
