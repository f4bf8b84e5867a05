"""Built-in conversations of a customer-service agent of an airline: a long policy, 14 tools, 6 to 52 messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

from ._talk import Talk, tool
from ._workload import Conversation

_STEPS = (
    "1. Ask for the customer's number, and look the customer up before anything else is said about a booking.",
    "2. Ask for the booking's code. Where the customer does not have it, offer the codes that the profile lists.",
    "3. Read the booking with the tool. Never answer from memory: fares, seats and times change while you talk.",
    "4. Say what can be done, what it costs and what is lost by it, and wait for a clear yes.",
    "5. Do it with one call of one tool, read what came back, and tell the customer in one or two sentences.",
)
_RULES = (
    (
        "Changes",
        (
            "The {what} of a {fare} booking can be changed until {hours} hours before departure. The fee is {fee} "
            "euros for each traveller, beside the difference in fare. After that the desk at the airport decides."
        ),
    ),
    (
        "Cancellations",
        (
            "A {fare} booking is refunded in full where it is cancelled within {hours} hours of being made, "
            "and where the airline cancels. Else {fee} euros are kept, and the rest goes back to the card that "
            "was charged."
        ),
    ),
    (
        "Baggage",
        (
            "A traveller of {fare} fare takes {pieces} pieces of {weight} kg. Each further one costs {fee} euros "
            "when it is added to the booking, and half as much again at the airport. Pieces are added, never "
            "taken away."
        ),
    ),
    (
        "Delays",
        (
            "Where a flight of a {fare} booking arrives more than {hours} hours late, a voucher of {fee} euros for "
            "each traveller is offered, once, and only where the customer complains and the log confirms the delay."
        ),
    ),
    (
        "Travellers",
        (
            "The name of a {fare} traveller can be corrected by up to {pieces} letters at no cost. The number "
            "of travellers in a booking cannot be changed by anybody; a new booking has to be made for others."
        ),
    ),
    (
        "Payments",
        (
            "A {fare} booking is paid with at most {pieces} means of payment, all of which the profile must hold. "
            "Vouchers are spent whole, gift cards in part, and no more than {fee} euros of either on one traveller."
        ),
    ),
)
_SEATS = "Seats of a {fare} booking can be chosen from {hours} hours before departure on, at {fee} euros each."
_FARES = ("basic", "standard", "flexible", "business")
_CITIES = ("LIS", "OSL", "WAW", "ATH", "DUB", "PRG", "HEL", "MAD", "VIE", "ZRH", "CPH", "BRU")
_NAMES = ("Ines Duarte", "Jonas Berg", "Marta Nowak", "Nikos Pappas", "Aoife Byrne", "Petr Dvorak", "Aino Laine")
_ASKS = (
    "Hello, I have to change a flight that I booked last week, can you help me with that?",
    "Can I take a second suitcase?",
    "My flight from {a} to {b} was four hours late and I missed the meeting that I travelled for.",
    "I want to cancel. What do I get back?",
    "My code is {code} and my number is {user}.",
    "Yes, please do that.",
    "Is there an earlier one on the same day, and how much would it cost with a seat at the window?",
    "That is too expensive. What else is there between {a} and {b}?",
    "One of us has married and has another name in her passport now.",
    "No, use the card that ends in {last}, not the voucher.",
)
_REPLIES = (
    (
        "I have found booking {code} from {a} to {b}. The fare is {fare}. A change costs {fee} euros for each "
        "traveller, "
        "beside the difference in fare. Shall I look for other flights on the same day, or do you have another in mind?"
    ),
    (
        "Thank you. Before I go on, I need your customer number and the code of your booking, which has six "
        "letters and "
        "stands at the top of the confirmation that we sent you."
    ),
    (
        "Done. Booking {code} now leaves {a} at {hour}:40 and arrives in {b} two hours and ten minutes later. "
        "{fee} euros "
        "were charged to the card that ends in {last}. You will have the new confirmation in a few minutes."
    ),
    (
        "I am sorry that this has spoilt your journey. The log confirms the delay. For a {fare} booking I can "
        "offer each "
        "traveller a voucher of {fee} euros, which is valid for a year. Would you like me to issue them now?"
    ),
    (
        "That is not possible for a {fare} booking so shortly before departure. The desk at the airport may "
        "still do it. "
        "What I can do from here is to cancel it, of which {fee} euros would be kept. Do you want that?"
    ),
)


def policy() -> str:
    """Return the system prompt: about 6 kB."""
    random = Random("airline policy")
    lines = [
        "You help customers of an airline with bookings that they have: changes, cancellations, baggage, refunds.",
        "What you may do is written here. Where it says nothing, hand the customer over to a colleague.",
        "",
        "How you work",
        *_STEPS,
        "",
    ]
    for title, text in _RULES:
        lines.append(title)
        for fare in _FARES:
            values = {
                "fare": fare,
                "what": random.choice(("date", "time", "route", "cabin")),
                "hours": random.choice((2, 3, 6, 24, 48)),
                "fee": random.randrange(15, 200, 5),
                "pieces": random.randrange(1, 4),
                "weight": random.choice((12, 20, 23, 32)),
            }
            lines.append("- " + text.format(**values))
        lines.append("")
    lines.append("Seats")
    lines += ["- " + _SEATS.format(fare=fare, hours=48 - 6 * at, fee=5 * at) for at, fare in enumerate(_FARES)]
    return "\n".join(lines)


_BOOKING = ("string", "Code of the booking: six letters and digits, as in the confirmation.")
_CUSTOMER = ("string", "Number of the customer, as the profile has it.")
_DAY = ("string", "Day of departure, year first: 2026-05-17.")
_FROM, _TO = ("string", "Airport of departure, three letters."), ("string", "Airport of arrival, three letters.")
_CARD = ("string", "Means of payment to charge, as the profile names it.")
TOOLS = (
    tool("read_customer", "Return a customer's profile with bookings and means of payment.", customer=_CUSTOMER),
    tool("read_booking", "Return a booking: flights, travellers, fare, baggage, payments.", booking=_BOOKING),
    tool("list_airports", "Return all airports that the airline flies to, with their cities."),
    tool("find_direct", "Return flights without a change on one day.", start=_FROM, end=_TO, day=_DAY),
    tool("find_with_change", "Return flights with one change on one day.", start=_FROM, end=_TO, day=_DAY),
    tool(
        "book",
        "Make a new booking. Ask the customer before you call this.",
        customer=_CUSTOMER,
        start=_FROM,
        end=_TO,
        day=_DAY,
        cabin=("string", "One of basic, standard, flexible, business."),
        card=_CARD,
        flights=("array", "Numbers of the flights, in the order in which they are flown."),
        travellers=("array", "Names and birthdays of everybody who travels, as in their passports."),
        pieces=("integer", "Pieces of baggage, all travellers together."),
    ),
    tool(
        "change_flights",
        "Put other flights into a booking, and charge or pay back the difference.",
        booking=_BOOKING,
        flights=("array", "Numbers of all flights of the booking, those that stay included."),
        card=_CARD,
    ),
    tool(
        "change_travellers",
        "Correct names of travellers; their number cannot change.",
        booking=_BOOKING,
        travellers=("array", "All travellers, in the order that the booking has."),
    ),
    tool(
        "add_baggage",
        "Add pieces of baggage to a booking.",
        booking=_BOOKING,
        card=_CARD,
        pieces=("integer", "Pieces after the change, not pieces to add."),
    ),
    tool("cancel", "Cancel a whole booking and refund what its fare says.", booking=_BOOKING),
    tool("issue_voucher", "Give a customer a voucher.", customer=_CUSTOMER, euros=("integer", "Its value.")),
    tool("flight_log", "Return when a flight really left and arrived.", flight=("string", "Its number."), day=_DAY),
    tool("compute", "Return the value of an arithmetic expression.", expression=("string", "Numbers, + - * / ( ).")),
    tool("hand_over", "Hand the customer over to a colleague.", summary=("string", "What was said and done so far.")),
)
_READING = ("read_customer", "read_booking", "find_direct", "flight_log", "compute", "find_with_change")


def airline(number: int, seed: int) -> Conversation:
    """Return conversation `number`: always the same."""
    random = Random(f"airline/{seed}/{number}")
    a, b = random.sample(_CITIES, 2)
    facts = {
        "a": a,
        "b": b,
        "code": "".join(random.choices("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=6)),
        "user": f"{random.choice(_NAMES).split()[1].lower()}_{random.randrange(1000, 9999)}",
        "last": random.randrange(1000, 9999),
        "fare": random.choice(_FARES),
        "fee": random.randrange(15, 200, 5),
        "hour": random.randrange(6, 22),
    }
    talk = Talk()
    talk.says("system", policy())
    # Half of them are over after 18 messages, one in ten goes on beyond 36.
    most = min(max(round(random.lognormvariate(2.95, 0.45)), 7), 51)
    while len(talk.messages) + 2 <= most:
        talk.says("user", random.choice(_ASKS).format(**facts))
        for _ in range(random.choice((0, 1, 1, 2))):
            if len(talk.messages) + 3 <= most:
                name = random.choice(_READING)
                talk.calls_tool(name, _result(name, facts, random), None, **_arguments(name, facts))
        talk.says("assistant", random.choice(_REPLIES).format(**facts))
    return Conversation(name=f"airline {number}", messages=tuple(talk.messages), tools=TOOLS)


def _arguments(name: str, facts: Mapping[str, Any]) -> dict[str, object]:
    if name == "read_customer":
        return {"customer": facts["user"]}
    if name == "read_booking":
        return {"booking": facts["code"]}
    if name == "compute":
        return {"expression": f"2 * {facts['fee']} + 118"}
    if name == "flight_log":
        return {"flight": f"XL{facts['hour']}7", "day": "2026-05-17"}
    return {"start": facts["a"], "end": facts["b"], "day": "2026-05-17"}


def _result(name: str, facts: Mapping[str, Any], random: Random) -> str:
    if name == "compute":
        return str(2 * facts["fee"] + 118)
    flights = [
        {
            "flight": f"XL{random.randrange(100, 999)}",
            "from": facts["a"],
            "to": facts["b"],
            "departure": f"{hour}:40",
            "arrival": f"{hour + 2}:50",
            "seats": {fare: random.randrange(0, 20) for fare in _FARES},
            "prices": {fare: random.randrange(59, 480) for fare in _FARES},
        }
        for hour in sorted(random.sample(range(6, 22), 8 if name.startswith("find") else 2))
    ]
    if name.startswith("find"):
        return json.dumps(flights)
    if name == "flight_log":
        return json.dumps({"flight": flights[0]["flight"], "planned": "9:40", "left": "13:52", "arrived": "16:05"})
    people = [{"name": who, "born": f"19{random.randrange(50, 99)}-04-12"} for who in random.sample(_NAMES, 2)]
    cards = {"card_1": {"kind": "card", "last": facts["last"]}, "voucher_1": {"kind": "voucher", "euros": facts["fee"]}}
    if name == "read_customer":
        return json.dumps({"customer": facts["user"], "people": people, "payments": cards, "bookings": [facts["code"]]})
    return json.dumps(
        {
            "booking": facts["code"],
            "fare": facts["fare"],
            "flights": flights,
            "travellers": people,
            "baggage": {"pieces": 2, "paid": 1},
            "payments": cards,
            "made": "2026-04-30T11:02:13",
        }
    )
