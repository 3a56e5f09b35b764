"""What options of traffic say, in sentences."""

from __future__ import annotations

from connectors.synthetic.options import Traffic
from connectors.synthetic.users import percent


def sentences(traffic: Traffic) -> list[str]:
    """What the options say of arrivals and lengths."""
    what = "arrivals" if traffic.session_turns is None else "arrivals of sessions"
    said = [f"{gaps_in_words(traffic)} {what} at {traffic.rate_per_s:g} /s"]
    if traffic.overload_s is not None:
        start_s, end_s = traffic.overload_start_s, traffic.overload_start_s + traffic.overload_s
        said[0] += f", x {traffic.overload_factor:g} from {start_s:g} to {end_s:g} s"
        if traffic.recovery_factor != 1.0:
            said[0] += f" and x {traffic.recovery_factor:g} from there on"
    if traffic.burst_every_s is not None:
        said[0] += f", x {traffic.burst_factor:g} in {traffic.burst_law} bursts of {traffic.burst_s:g} s"
        said[0] += f" every {traffic.burst_every_s:g} s"
        if traffic.quiet_factor != 1.0:
            said[0] += f" and x {traffic.quiet_factor:g} between them"
    if traffic.states is not None:
        said[0] += f", x {traffic.states} (factor@mean seconds) in states that come and go at random"
    if traffic.daily_swing is not None:
        said[0] += f", {percent(traffic.daily_swing)} above and below that in a day of {traffic.daily_period_s:g} s"
    said += client_sentences(traffic) + session_sentences(traffic)
    said.append(f"prompts of {traffic.prompt_tokens} tokens, outputs of {traffic.output_tokens}")
    if traffic.prefixes is not None:
        said.append(
            f"{percent(traffic.prefix_share)} of the prompts begin with one of {traffic.prefixes:,} prefixes of "
            f"{traffic.prefix_tokens:,} tokens more"
        )
    return said


def gaps_in_words(traffic: Traffic) -> str:
    """The name of the arrival process."""
    if traffic.client_cv is not None:
        return traffic.arrival_family.title()
    if traffic.arrival_cv == 0.0:
        return "evenly spaced"
    return "Poisson" if traffic.arrival_cv == 1.0 else f"{traffic.arrival_family.title()} (cv {traffic.arrival_cv:g})"


def client_sentences(traffic: Traffic) -> list[str]:
    """What they say of clients."""
    if traffic.clients is None:
        return []
    said = [f"{traffic.clients:,} clients, the k-th with a share of the rate as k^-{traffic.client_skew:g}"]
    if traffic.client_cv is not None:
        said[0] += f", and a cv of {traffic.client_cv}"
    if traffic.client_spread:
        said.append(f"mean lengths of clients with a cv of {traffic.client_spread:g}")
    return said


def session_sentences(traffic: Traffic) -> list[str]:
    """What they say of sessions."""
    if traffic.session_turns is None:
        return []
    after = "the one before has ended in the replay"
    if traffic.session_loop == "open":
        after = (
            f"the one before would have ended, were it begun after {traffic.first_token_s:g} s and written at "
            f"{traffic.token_s:g} s a token"
        )
    return [
        f"sessions of {traffic.session_turns} turns, whose prompts hold what was said before",
        f"a turn comes {traffic.think_time_s} s after {after}",
    ]
