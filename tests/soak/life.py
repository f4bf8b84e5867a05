"""The process that makes the calls: told what to do by `tests.soak`."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import IO, Any

import uvloop

from fastlane import AsyncOpenAI, CallRecord
from tests.soak import asking, holding
from tests.soak.clients import Clients, Places, is_asynchronous, model_of
from tests.soak.plan import Op, Round, Scene, round_of
from tests.soak.watchdog import CALL_HANGS_S, SCENE_HANGS_S, Watchdog

_CHILD_HANGS_S = CALL_HANGS_S


class Life:
    """Plays rounds."""

    def __init__(self, places: Places, seed: int, told: IO[str], scratch: Path, forget_every: int = 0) -> None:
        self.clients = Clients(places, seed)
        self._forget_every = self._forget_at = forget_every
        self.noises = holding.Noises()
        self.watchdog = Watchdog(self._hangs)
        self._seed = seed
        self._told = told
        self._scratch = scratch
        self._round = 0
        self._seen: list[tuple[str, str, str, float]] = []
        self._wrong: list[str] = []
        self._began: dict[str, str] = {}

    def tell(self, **what: Any) -> None:
        """Say something to who started this."""
        self._told.write(json.dumps(what) + "\n")
        self._told.flush()

    def _hangs(self, what: list[str], stacks: str) -> None:
        self.tell(type="hang", what=what, stacks=stacks, round=self._round)
        os._exit(3)

    def begin(self) -> None:
        """Note what the process holds before it has done anything."""
        self.noises.listen()
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        self.watchdog.start()
        # libuv keeps a pipe for as long as the process lives.
        self._run(lambda: asyncio.sleep(0), "uvloop")
        holding.tidy()
        self._began = holding.descriptors()
        self.tell(type="ready", **self._sample())

    def _sample(self) -> dict[str, Any]:
        return {
            "resident": holding.resident(),
            "descriptors": len(holding.descriptors()),
            "threads": len(holding.threads()),
            "objects": len(gc.get_objects()),
            "blocks": sys.getallocatedblocks(),
        }

    def play(self, number: int) -> None:
        """Play one round, and tell what came of it."""
        drawn = round_of(self._seed, number)
        self._round = number
        self._at_once(lambda scene: self._scene(drawn, scene), drawn.scenes, "scene")
        # Streams that were dropped are told of by their clients, while there are these.
        holding.tidy()
        self.clients.look()
        self._closed(self.clients.dying(number))
        if drawn.bare:
            self._closed(self.clients.dying())
        left = self._left() if drawn.bare else []
        if drawn.bare and self._forget_every and number >= self._forget_at:
            self._forget_at = number + self._forget_every
            self.clients.forget()
        holding.tidy()
        records = [_told_of(self.clients.records.popleft()) for _ in range(len(self.clients.records))]
        seen, self._seen = self._seen, []
        wrong, self._wrong = self._wrong, []
        self.tell(
            type="round", number=number, bare=drawn.bare, seen=seen, records=records, left=left, wrong=wrong,
            noises=self.noises.taken(), opened=self.clients.opened, **self._sample(),
        )  # fmt: skip

    def _left(self) -> list[str]:
        """Return what is held though every client is closed or gone."""
        self._check_tasks()
        # A client that was dropped leaves its connections to the next one, which closes them.
        self._closed([self.clients.own(Scene(
            number=-1, way="clients", asynchronous=False, loop="asyncio", target="h1", plays="default", client="own",
            runs=1, actors=(),
        ))])  # fmt: skip
        left = []
        if not holding.settled(lambda: not holding.threads()):
            left += [f"thread {name}" for name in holding.threads()]
        if not holding.settled(lambda: len(holding.descriptors()) <= len(self._began)):
            now = holding.descriptors()
            left += [f"descriptor {number} {to}" for number, to in now.items() if self._began.get(number) != to]
        return left

    def _check_tasks(self) -> None:
        async def check(plays: str) -> None:
            scene = Scene(
                number=-1, way="tasks", asynchronous=True, loop="asyncio", target="h2", plays=plays, client="own",
                runs=1, actors=(),
            )  # fmt: skip
            action = f"{self._seed:x}-{self._round}-tasks-{plays}-{type(asyncio.get_running_loop()).__module__}"
            op = Op(action=action, nonce=action, api="chat", stream=True, size=50, leave="drop", after=2)
            client = self.clients.own(scene)
            await self._aseen(client, op, scene)
            await client.close()
            for _ in range(100):
                others = asyncio.all_tasks() - {asyncio.current_task()}
                if not others:
                    return
                await asyncio.sleep(0.02)
            self._wrong.append(f"tasks left after close with {plays}: {[repr(task)[:300] for task in others]}")

        for plays in ("default", "everything"):
            self._run(lambda plays=plays: check(plays), "asyncio")  # type: ignore[misc]
            self._run(lambda plays=plays: check(plays), "uvloop")  # type: ignore[misc]

    def _closed(self, clients: Iterable[Any]) -> None:
        for client in clients:
            with self.watchdog.watching("close", SCENE_HANGS_S):
                if is_asynchronous(client):
                    self._run(client.close, "asyncio")
                else:
                    client.close()

    def _at_once(self, do: Callable[[Any], None], things: Iterable[Any], name: str) -> None:
        def safely(thing: Any) -> None:
            try:
                do(thing)
            except BaseException:  # noqa: BLE001 - reported as a failure
                self._wrong.append(f"{name}: {traceback.format_exc()}")

        each = [
            threading.Thread(target=safely, args=(thing,), name=f"soak-{name}-{index}")
            for index, thing in enumerate(things)
        ]
        for thread in each:
            thread.start()
        for thread in each:
            thread.join()

    def _run(self, make: Callable[[], Coroutine[Any, Any, None]], loop: str) -> None:
        factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner, self.watchdog.loop(runner.get_loop()):
            runner.get_loop().set_exception_handler(self.noises.of_loop)
            runner.run(make())

    def _scene(self, drawn: Round, scene: Scene) -> None:
        with self.watchdog.watching(f"scene {drawn.number}/{scene.number} {scene.way}", SCENE_HANGS_S):
            if scene.way == "clients":
                self._clients(scene)
                return
            client = self.clients.kept(scene, drawn.number) if scene.client == "kept" else self.clients.own(scene)
            if scene.way == "fork":
                self._fork(client, scene, scene.actors)
            else:
                self._actors(client, scene, scene.actors)
            if scene.client != "kept":
                self._told_of_dropped(client, scene.actors)
            if scene.client == "own":
                self._closed([client])

    def _told_of_dropped(self, client: Any, actors: tuple[tuple[Op, ...], ...]) -> None:
        """Have a client that is about to go tell of streams that were dropped."""
        if any(op.leave in ("drop", "cycle") for ops in actors for op in ops):
            holding.collect()
            assert client.calls is not None

    def _actors(self, client: Any, scene: Scene, actors: tuple[tuple[Op, ...], ...]) -> None:
        """Have the actors make their calls side by side with one client."""
        if scene.way == "together":
            for ops in zip(*actors, strict=True):
                self._side_by_side(client, scene, tuple((op,) for op in ops))
        elif scene.asynchronous:
            share = -(-len(actors) // scene.runs)
            for run in range(scene.runs):
                self._side_by_side(client, scene, actors[run * share : (run + 1) * share])
        else:
            self._side_by_side(client, scene, actors)

    def _side_by_side(self, client: Any, scene: Scene, actors: tuple[tuple[Op, ...], ...]) -> None:
        async def aact(ops: tuple[Op, ...]) -> None:
            for op in ops:
                await self._aseen(client, op, scene)

        async def all_of_them() -> None:
            await asyncio.gather(*(aact(ops) for ops in actors))

        def act(ops: tuple[Op, ...]) -> None:
            for op in ops:
                self._note(op, lambda op=op: asking.ask(client, op, model_of(scene)))  # type: ignore[misc]

        if scene.asynchronous:
            self._run(all_of_them, scene.loop)
        else:
            self._at_once(act, actors, "actor")

    def _note(self, op: Op, ask: Callable[[], asking.Seen]) -> None:
        began = time.monotonic()
        with self.watchdog.watching(op.action):
            seen = ask()
        self._seen.append((op.action, seen.end, seen.detail, time.monotonic() - began))

    async def _aseen(self, client: Any, op: Op, scene: Scene) -> None:
        began = time.monotonic()
        with self.watchdog.watching(op.action):
            seen = await asking.aask(client, op, model_of(scene))
        self._seen.append((op.action, seen.end, seen.detail, time.monotonic() - began))

    def _clients(self, scene: Scene) -> None:
        """Have each actor open a client for each call, and close it after."""

        async def aact(ops: tuple[Op, ...]) -> None:
            for op in ops:
                client: AsyncOpenAI = self.clients.own(scene)
                await self._aseen(client, op, scene)
                self._told_of_dropped(client, ((op,),))
                await client.close()

        async def all_of_them() -> None:
            await asyncio.gather(*(aact(ops) for ops in scene.actors))

        def act(ops: tuple[Op, ...]) -> None:
            for op in ops:
                with self.clients.own(scene) as client:
                    self._note(op, lambda op=op, client=client: asking.ask(client, op, model_of(scene)))  # type: ignore[misc]
                    self._told_of_dropped(client, ((op,),))

        if scene.asynchronous:
            self._run(all_of_them, scene.loop)
        else:
            self._at_once(act, scene.actors, "actor")

    def _fork(self, client: Any, scene: Scene, actors: tuple[tuple[Op, ...], ...]) -> None:
        """Fork while one half of the actors make calls; the child makes those of the other half."""
        half = len(actors) // 2
        beside = threading.Thread(
            target=self._at_once, args=(lambda them: self._actors(client, scene, them), [actors[:half]], "parent")
        )
        beside.start()
        told = self._scratch / f"child-{self._round}-{scene.number}.json"
        time.sleep(0.01)
        child = os.fork()
        if child == 0:
            self._in_child(client, scene, actors[half:], told)
        beside.join()
        status = self._waited_for(child)
        if status != 0:
            self._wrong.append(f"child of {self._seed:x}-{self._round}-{scene.number} ended with {status}")
        if told.exists():
            came = json.loads(told.read_text())
            told.unlink()
            self._seen += [tuple(seen) for seen in came["seen"]]
            self._wrong += [f"in the child: {what}" for what in came["wrong"]]
            # Records of a child come beside the parent's own, which has already told of its calls.
            self.clients.records.extend(came["records"])

    def _waited_for(self, child: int) -> int:
        deadline = time.monotonic() + _CHILD_HANGS_S
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

    def _in_child(self, client: Any, scene: Scene, actors: tuple[tuple[Op, ...], ...], told: Path) -> None:
        """Go on in the child, with its parent's client and with one of its own, and end."""
        status = 1
        try:
            self.clients.begin_in_child()
            self._seen, self._wrong = [], []
            self.noises.taken()
            mine = {op.action for ops in actors for op in ops}
            self._actors(client, scene, actors[:1])
            own = self.clients.own(scene)
            self._actors(own, scene, actors[1:])
            self._told_of_dropped(own, actors)
            self._closed([own])
            holding.tidy()
            assert client.calls is not None
            records = [_told_of(record) for record in self.clients.records]
            wrong = self._wrong + self.noises.taken()
            kept = [record for record in records if record["action"] in mine]
            told.write_text(json.dumps({"seen": self._seen, "records": kept, "wrong": wrong}))
            status = 0
        except BaseException:  # noqa: BLE001 - reported as a failure
            told.write_text(json.dumps({"seen": [], "records": [], "wrong": [traceback.format_exc()]}))
        finally:
            os._exit(status)


def _told_of(record: CallRecord | dict[str, Any]) -> dict[str, Any]:
    """Return what is judged of a record."""
    if isinstance(record, dict):
        return record
    return {
        "action": record.user_actions[0] if record.user_actions else None,
        "call_id": record.call_id,
        "outcome": record.outcome,
        "error": record.error,
        "endpoint": record.endpoint,
        "attempts": [
            {"kind": each.kind, "status": each.status_code, "error": each.error, "resent": each.resent,
             "given_up": each.given_up, "origin": each.origin}
            for each in record.attempts
        ],
    }  # fmt: skip


def main() -> None:
    """Do what is asked for on one pipe, and tell of it on another."""
    settings = json.loads(sys.argv[1])
    asked, told = os.fdopen(settings["asked"]), os.fdopen(settings["told"], "w")
    places, scratch = Places(settings["h2"], settings["h1"]), Path(settings["scratch"])
    life = Life(places, settings["seed"], told, scratch, settings["forget_every"])
    life.begin()
    for line in asked:
        life.play(json.loads(line)["number"])
