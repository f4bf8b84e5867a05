"""Ways to change the tools of a recorded conversation, or the order of keys, and what every such change is made of."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

Body = dict[str, Any]


class Mutation(NamedTuple):
    """One conversation twice: as it was sent, and as it is sent with one more turn and one thing changed."""

    kind: str
    name: str
    """The mutator, and how it wrote the value."""
    before: Body
    after: Body
    path: str | None
    """Of the value that differs."""
    character: int | None
    """Of the first difference in it; None where it is no text."""


def reordered_keys(rng: random.Random, body: Body) -> Mutation:
    """Write the keys of a tool, or of a tool's result, in another order."""
    after = copy.deepcopy(body)
    index = rng.randrange(len(body["tools"]))
    tool = after["tools"][index]
    name = rng.choice(("tool", "function", "properties", "all", "required", "result"))
    path = f"tools[{index}]"
    parameters = tool["function"]["parameters"]
    results = [at for at, message in enumerate(body["messages"]) if _shuffled_json(message) is not None]
    if name == "result" and results:
        at = rng.choice(results)
        text = body["messages"][at]["content"]
        changed = _shuffled_json(body["messages"][at])
        assert changed is not None
        # The text as the encoder writes it, so that the order is all that changes.
        before = copy.deepcopy(body)
        before["messages"][at]["content"] = text = json.dumps(json.loads(text))
        after["messages"][at]["content"] = changed
        return Mutation("reordered_keys", name, before, after, f"messages[{at}].content", apart(text, changed))
    if name == "required" and len(parameters.get("required", ())) > 1:
        parameters["required"].reverse()
        return Mutation("reordered_keys", name, body, after, path + ".function.parameters.required", None)
    if name == "properties" and len(parameters.get("properties", {})) > 1:
        parameters["properties"] = _reversed(parameters["properties"])
        return Mutation("reordered_keys", name, body, after, path + ".function.parameters.properties", None)
    if name == "function":
        tool["function"] = _reversed(tool["function"])
        return Mutation("reordered_keys", name, body, after, path + ".function", None)
    if name == "all":
        after["tools"][index] = json.loads(json.dumps(tool, sort_keys=True))
        if json.dumps(after["tools"][index]) != json.dumps(tool):
            changed_path = _first_order(tool, after["tools"][index], path)
            return Mutation("reordered_keys", name, body, after, changed_path, None)
    after["tools"][index] = _reversed(tool)
    return Mutation("reordered_keys", "tool", body, after, path, None)


def reordered_tools(rng: random.Random, body: Body) -> Mutation:
    """Put the tools in another order."""
    after = copy.deepcopy(body)
    tools = after["tools"]
    name = rng.choice(("shuffled", "swapped", "sorted", "rotated"))
    while tools == body["tools"]:
        if name == "shuffled":
            rng.shuffle(tools)
        elif name == "sorted" and sorted(tools, key=lambda tool: tool["function"]["name"]) != tools:
            tools.sort(key=lambda tool: tool["function"]["name"])
        elif name == "rotated":
            tools.append(tools.pop(0))
        else:
            one, other = rng.sample(range(len(tools)), 2)
            tools[one], tools[other] = tools[other], tools[one]
    first = next(at for at, tool in enumerate(tools) if tool != body["tools"][at])
    return Mutation("reordered_tools", name, body, after, f"tools[{first}]", None)


def changed_tool(rng: random.Random, body: Body) -> Mutation:
    """Edit, add or take away one tool."""
    after = copy.deepcopy(body)
    index = rng.randrange(len(after["tools"]))
    tool = after["tools"][index]["function"]
    path = f"tools[{index}]"
    properties = tool["parameters"]["properties"]
    name = rng.choice(
        ("removed", "added", "described", "extended", "parameter", "gone", "type", "described_parameter", "renamed")
    )
    if name == "removed":
        del after["tools"][index]
        return Mutation("changed_tool", name, body, after, path, None)
    if name == "added":
        after["tools"].insert(index, {"type": "function", "function": {"name": "ping", "parameters": {}}})
        return Mutation("changed_tool", name, body, after, path, None)
    if name == "parameter":
        properties["verbose"] = {"type": "boolean", "description": "Whether to say more."}
        return Mutation("changed_tool", name, body, after, path + ".function.parameters.properties.verbose", None)
    if name in {"gone", "type", "described_parameter"} and properties:
        key = rng.choice(list(properties))
        path += f".function.parameters.properties.{key}"
        if name == "gone":
            del properties[key]
            return Mutation("changed_tool", name, body, after, path, None)
        if name == "type":
            before = str(properties[key].get("type", ""))
            properties[key]["type"] = "number" if before != "number" else "string"
            if before:
                return Mutation("changed_tool", name, body, after, path + ".type", 0)
            return Mutation("changed_tool", name, body, after, path + ".type", None)
        text = properties[key].get("description")
        if text:
            changed = reworded(rng, text)
            properties[key]["description"] = changed
            return Mutation("changed_tool", name, body, after, path + ".description", apart(text, changed))
        properties[key]["description"] = "What it is."
        return Mutation("changed_tool", name, body, after, path + ".description", None)
    if name == "renamed":
        tool["name"], text = "call_" + tool["name"], tool["name"]
        return Mutation("changed_tool", name, body, after, path + ".function.name", apart(text, tool["name"]))
    text = tool["description"]
    tool["description"] = text + " Use it sparingly." if name == "extended" else reworded(rng, text)
    location = path + ".function.description"
    return Mutation("changed_tool", name, body, after, location, apart(text, tool["description"]))


def reworded(rng: random.Random, text: str) -> str:
    """Put another word in the place of one."""
    words = text.split(" ")
    candidates = [at for at, word in enumerate(words) if word.isalpha()] or [0]
    at = rng.choice(candidates)
    words[at] = rng.choice([word for word in ("perhaps", "always", "the", "customer", "kindly") if word != words[at]])
    return " ".join(words)


def _reversed(one: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one[key] for key in reversed(list(one))}


def _shuffled_json(message: Body) -> str | None:
    if message["role"] != "tool" or not message["content"].startswith("{"):
        return None
    try:
        value = json.loads(message["content"])
    except ValueError:
        return None
    return json.dumps(_reversed(value)) if len(value) > 1 else None


def _first_order(one: Any, other: Any, path: str) -> str:
    """The outermost container, in reading order, whose keys are in another order."""
    if isinstance(one, dict):
        if list(one) != list(other):
            # What stands in front of the first key that is another may differ inside.
            for mine, theirs in zip(one, other, strict=True):
                if mine != theirs:
                    return path
                if json.dumps(one[mine]) != json.dumps(other[mine]):
                    return _first_order(one[mine], other[mine], f"{path}.{mine}")
        for key in one:
            if json.dumps(one[key]) != json.dumps(other[key]):
                return _first_order(one[key], other[key], f"{path}.{key}")
    if isinstance(one, list):
        for at, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            if json.dumps(mine) != json.dumps(theirs):
                return _first_order(mine, theirs, f"{path}[{at}]")
    return path


def apart(one: str, other: str) -> int:
    """Characters at the front that two texts have in common."""
    at = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        at += 1
    return at
