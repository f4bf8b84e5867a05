"""The process that makes the calls, controlled by `tests.soak`."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

import uvloop

from fastlane import AsyncOpenAI, CallRecord
from tests.soak import holding
from tests.soak.asking import MODEL, ask, finished, settled
from tests.soak.clients import Clients
from tests.soak.plan import Op, Round, Scene, round_of

Actors = Sequence[tuple[Op, ...]]


class Life:
    """Plays rounds."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.clients = Clients(settings["urls"], settings["seed"])
        self.reports = holding.PythonReports()
        self.watchdog = holding.Watchdog(self._hangs)
        self._forget_every = self._forget_at = settings["forget_every"]
        self._seed = settings["seed"]
        self._output = os.fdopen(settings["report"], "w")
        self._scratch = Path(settings["scratch"])
        self._round = 0
        self._seen: list[tuple[str, str, str, float]] = []
        self._wrong: list[str] = []
        self.reports.listen()
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        self.watchdog.start()
        # libuv keeps a pipe for as long as the process lives.
        self._run(lambda: asyncio.sleep(0), "uvloop")
        holding.tidy()
        self._began = holding.descriptors()
        self.tell(type="ready")

    def tell(self, **what: Any) -> None:
        """Say something to who started this."""
        self._output.write(json.dumps(what) + "\n")
        self._output.flush()

    def _hangs(self, what: list[str], stacks: str) -> None:
        self.tell(type="hang", what=what, stacks=stacks, round=self._round)
        os._exit(3)

    def play(self, number: int) -> None:
        """Play one round, and tell what came of it."""
        drawn = round_of(self._seed, number)
        self._round = number
        self._at_once(lambda scene: self._scene(drawn, scene), drawn.scenes, "scene")
        # Clients report dropped streams while they exist.
        holding.tidy()
        self.clients.look()
        self._closed(self.clients.dying(None if drawn.bare else number))
        left = self._left() if drawn.bare else []
        if drawn.bare and self._forget_every and number >= self._forget_at:
            self._forget_at = number + self._forget_every
            self.clients.forget()
        holding.tidy()
        records = [_judged_parts_of(self.clients.records.popleft()) for _ in range(len(self.clients.records))]
        seen, self._seen = self._seen, []
        wrong, self._wrong = self._wrong, []
        self.tell(
            type="round", number=number, bare=drawn.bare, seen=seen, records=records, left=left, wrong=wrong,
            reports=self.reports.taken(), opened=self.clients.opened, resident=holding.resident(),
            descriptors=len(holding.descriptors()), threads=len(holding.threads()),
            blocks=sys.getallocatedblocks(),
        )  # fmt: skip

    def _left(self) -> list[str]:
        """Return what is held though every client is closed or gone."""
        for plays in ("default", "everything"):
            for loop in ("asyncio", "uvloop"):
                self._run(lambda plays=plays, loop=loop: self._check_tasks(plays, loop), loop)  # type: ignore[misc]
        # A client that was dropped leaves its connections to the next one, which closes them.
        self._closed([self.clients.own(Scene(way="clients", target="h1"))])
        left = []
        if not holding.settled(lambda: not holding.threads()):
            left += [f"thread {name}" for name in holding.threads()]
        if not holding.settled(lambda: len(holding.descriptors()) <= len(self._began)):
            now = holding.descriptors()
            left += [f"descriptor {number} {to}" for number, to in now.items() if self._began.get(number) != to]
        return left

    async def _check_tasks(self, plays: str, loop: str) -> None:
        scene = Scene(way="tasks", asynchronous=True, plays=plays)
        action = f"{self._seed:x}-{self._round}-tasks-{plays}-{loop}"
        op = Op(action=action, nonce=action, api="chat", stream=True, size=50, leave="drop", after=2)
        client = self.clients.own(scene)
        await self._call(client, op, scene)
        await client.close()
        others: set[Any] = set()
        for _ in range(100):
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if not others:
                return
            await asyncio.sleep(0.02)
        self._wrong.append(f"tasks left after close with {plays}: {[repr(task)[:300] for task in others]}")

    def _closed(self, clients: Iterable[Any]) -> None:
        for client in clients:
            with self.watchdog.watching("close", holding.SCENE_HANGS_S):
                if isinstance(client, AsyncOpenAI):
                    self._run(client.close, "asyncio")
                else:
                    client.close()

    def _at_once(self, do: Callable[[Any], None], things: Iterable[Any], name: str) -> None:
        def safely(thing: Any) -> None:
            try:
                do(thing)
            except BaseException:  # noqa: BLE001 - reported as a failure
                self._wrong.append(f"{name}: {traceback.format_exc()}")

        each = [threading.Thread(target=safely, args=(thing,), name=f"soak-{name}") for thing in things]
        for thread in each:
            thread.start()
        for thread in each:
            thread.join()

    def _run(self, make: Callable[[], Coroutine[Any, Any, Any]], loop: str) -> None:
        factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner, self.watchdog.loop(runner.get_loop()):
            runner.get_loop().set_exception_handler(self.reports.of_loop)
            runner.run(make())

    def _scene(self, drawn: Round, scene: Scene) -> None:
        with self.watchdog.watching(f"scene {drawn.number}/{scene.number} {scene.way}", holding.SCENE_HANGS_S):
            if scene.way == "clients":
                self._side_by_side(None, scene, scene.actors)
                return
            client = self.clients.kept(scene, drawn.number) if scene.client == "kept" else self.clients.own(scene)
            if scene.way == "fork":
                self._fork(client, scene)
            else:
                self._actors(client, scene, scene.actors)
            if scene.client != "kept":
                self._report_dropped(client, scene.actors)
            if scene.client == "own":
                self._closed([client])

    def _report_dropped(self, client: Any, actors: Actors) -> None:
        """Have a client that is about to go tell of streams that were dropped."""
        if any(op.leave in ("drop", "cycle") for ops in actors for op in ops):
            holding.collect()
            assert client.calls is not None

    def _actors(self, client: Any, scene: Scene, actors: Actors) -> None:
        """Have the actors make their calls with one client: each its next together with the others', or by itself."""
        if scene.way == "together":
            for ops in zip(*actors, strict=True):
                self._side_by_side(client, scene, [(op,) for op in ops])
            return
        share = -(-len(actors) // scene.runs)
        for run in range(scene.runs):
            self._side_by_side(client, scene, actors[run * share : (run + 1) * share])

    def _side_by_side(self, client: Any, scene: Scene, actors: Actors) -> None:
        """Have actors make their calls side by side; without a client, with one for each call."""

        async def act(ops: tuple[Op, ...]) -> None:
            for op in ops:
                used = self.clients.own(scene) if client is None else client
                await self._call(used, op, scene)
                if client is None:
                    self._report_dropped(used, ((op,),))
                    await settled(used.close())

        async def all_of_them() -> None:
            await asyncio.gather(*map(act, actors))

        if scene.asynchronous:
            self._run(all_of_them, scene.loop)
        else:
            self._at_once(lambda ops: finished(act(ops)), actors, "actor")

    async def _call(self, client: Any, op: Op, scene: Scene) -> None:
        began = time.monotonic()
        with self.watchdog.watching(op.action):
            seen = await ask(client, op, "fastlane/auto" if scene.target == "routed" else MODEL)
        self._seen.append((op.action, *seen, time.monotonic() - began))

    def _fork(self, client: Any, scene: Scene) -> None:
        """Fork while one half of the actors make calls; the child makes those of the other half."""
        half = len(scene.actors) // 2
        beside = threading.Thread(
            target=self._at_once,
            args=(lambda them: self._actors(client, scene, them), [scene.actors[:half]], "parent"),
        )
        beside.start()
        report = self._scratch / f"child-{self._round}-{scene.number}.json"
        time.sleep(0.01)
        child = os.fork()
        if child == 0:
            self._in_child(client, scene, scene.actors[half:], report)
        beside.join()
        status = _waited_for(child)
        if status != 0:
            self._wrong.append(f"child of {self._seed:x}-{self._round}-{scene.number} ended with {status}")
        if report.exists():
            came = json.loads(report.read_text())
            report.unlink()
            self._seen += map(tuple, came["seen"])
            self._wrong += [f"in the child: {what}" for what in came["wrong"]]
            # Records of a child come beside the parent's own, which has already reported its calls.
            self.clients.records.extend(came["records"])

    def _in_child(self, client: Any, scene: Scene, actors: Actors, report: Path) -> None:
        """Go on in the child, with its parent's client and with one of its own, and end."""
        status = 1
        try:
            self.clients.begin_in_child()
            self._seen, self._wrong = [], []
            self.reports.taken()
            self._actors(client, scene, actors[:1])
            own = self.clients.own(scene)
            self._actors(own, scene, actors[1:])
            self._report_dropped(own, actors)
            self._closed([own])
            holding.tidy()
            assert client.calls is not None
            mine = {op.action for ops in actors for op in ops}
            records = [record for record in map(_judged_parts_of, self.clients.records) if record["action"] in mine]
            wrong = self._wrong + self.reports.taken()
            report.write_text(json.dumps({"seen": self._seen, "records": records, "wrong": wrong}))
            status = 0
        except BaseException:  # noqa: BLE001 - reported as a failure
            report.write_text(json.dumps({"seen": [], "records": [], "wrong": [traceback.format_exc()]}))
        finally:
            os._exit(status)


def _waited_for(child: int) -> int:
    deadline = time.monotonic() + holding.CALL_HANGS_S
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGUSR1)  # its stacks go to stderr
            time.sleep(2)
            os.kill(child, signal.SIGKILL)
            deadline = float("inf")
        time.sleep(0.01)


def _judged_parts_of(record: CallRecord | dict[str, Any]) -> dict[str, Any]:
    """Return what is judged of a record."""
    if isinstance(record, dict):
        return record
    names = ("kind", "status_code", "error", "resent", "given_up", "origin")
    return {
        "action": record.user_actions[0] if record.user_actions else None,
        "call_id": record.call_id,
        "outcome": record.outcome,
        "error": record.error,
        "endpoint": record.endpoint,
        "attempts": [{name: getattr(each, name) for name in names} for each in record.attempts],
    }


def main() -> None:
    """Read requests from one pipe, and report on another."""
    settings = json.loads(sys.argv[1])
    life = Life(settings)
    for line in os.fdopen(settings["asked"]):
        life.play(int(line))
