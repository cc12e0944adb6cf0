"""The host and ShellKernel inside a real kernel."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest

from nbagent.notebook import host
from tests.notebook.kernel_harness import Kernel, Result, native_code
from tests.patience import FOREVER_S, until

pytestmark = pytest.mark.kernel
SLEEP = f"await asyncio.sleep({FOREVER_S})"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    kernel.start()
    assert kernel.run("%load_ext host_magic").status == "ok"
    yield kernel
    kernel.close()


@pytest.fixture
def kernel(shared: Kernel) -> Iterator[Kernel]:
    """The kernel, alive and with its own SIGINT handler before and after each test."""
    shared.run("EV.clear(); PRESSED.clear()")
    yield shared
    after = shared.run("import signal; print(signal.getsignal(signal.SIGINT), 1 + 1)")
    assert "default_int_handler" in after.stream()
    assert after.stream().strip().endswith("2")


def turn(body: str, *, first: str = "%%agent") -> str:
    """A cell whose turn is `body`."""
    return f"{first}\nasync def turn():\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"


def code(source: str) -> str:
    """The call that runs `source` as the agent's code."""
    return f"await kernel.run_code({textwrap.dedent(source).strip()!r}, label='5.2')"


def events(kernel: Kernel) -> list[object]:
    found: list[object] = eval(kernel.run("print(EV)").stream())
    return found


def assert_stopped(result: Result, text: str = "Stopped by test.") -> None:
    """Whatever ran would have gone on for an hour, and clean-up is waited for without end (`sitecustomize`)."""
    assert result.status == "error", result.reply
    assert (result.reply["ename"], result.reply["evalue"]) == ("TurnStopped", text)
    assert result.reply["traceback"] == [text]
    assert [m["content"]["traceback"] for m in result.of("error")] == [[text]]


# ---------------------------------------------------------------------- output
def test_a_display_is_updated_while_the_engine_works(kernel: Kernel) -> None:
    result = kernel.run(turn("await show('a', update=False)\nawait asyncio.sleep(.05)\nawait show('b')"))
    assert result.kinds() == ["display_data", "update_display_data"]
    first, last = result.messages
    assert first["content"]["transient"] == last["content"]["transient"]
    assert last["content"]["data"]["text/plain"] == "b"


def test_prints_of_inner_code_appear_in_the_cell_and_in_the_outcome(kernel: Kernel) -> None:
    body = f"o = {code('import sys; print(1 + 1); print(3, file=sys.stderr); 40 + 2')}\nEV.append((o.stdout, o.stderr, o.result_text))"
    result = kernel.run(turn(body))
    assert (result.stream(), result.stream("stderr")) == ("2\n", "3\n")
    assert result.of("execute_result")[0]["content"]["data"]["text/plain"] == "42"
    assert events(kernel) == [("2\n", "3\n", "42")]


def test_output_of_new_threads_children_and_old_log_handlers_is_captured(kernel: Kernel) -> None:
    kernel.run("import logging; log = logging.getLogger('t'); log.addHandler(logging.StreamHandler())")
    source = """
        import threading, subprocess, sys
        t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()
        log.warning('logged')
        !echo shell
    """
    kernel.run(turn(f"o = {code(source)}\nEV.append((o.stdout, o.stderr))"))
    ((out, err),) = events(kernel)
    assert "thread" in out
    assert "shell" in out
    assert err == "logged\n"


def test_figures_of_inner_code_appear_between_its_prints(kernel: Kernel) -> None:
    source = "import matplotlib.pyplot as plt; plt.plot([1, 2]); print('one')"
    body = f"o = {code(source)}\nEV.append([sorted(d.bundle) for d in o.displays])\n{code('print(2)')}"
    kernel.run("import matplotlib.pyplot")
    result = kernel.run(turn(body))
    kinds = [k for k in result.kinds() if k != "execute_result"]
    assert kinds == ["stream", "display_data", "stream"]
    assert events(kernel) == [["image/png", "text/plain"]] or events(kernel) == [[["image/png", "text/plain"]]]


def test_endless_output_is_withheld_bounded_and_spilled(kernel: Kernel) -> None:
    body = """
        n = [0]
        def spill(text): n[0] += len(text)
        o = await kernel.run_code("print('x' * 3_000_000)\\nfor i in range(20_000): print(i, 'y' * 50)", label='1', spill=spill)
        EV.append((len(o.stdout), o.dropped_chars, n[0]))
    """
    result = kernel.run(turn(body))
    ((kept, dropped, spilled),) = events(kernel)
    assert kept < 1_000_100
    assert kept + dropped == pytest.approx(spilled, abs=200)
    assert len(result.stream()) < 1_000_200
    assert result.stream().count("the rest is not shown here") == 1


def test_lone_surrogates_survive(kernel: Kernel) -> None:
    result = kernel.run(turn(f"o = {code('print(chr(0xd800)); chr(0xd801)')}\nEV.append(o.stdout)"))
    assert result.status == "ok"
    assert result.stream() == "\\ud800\n"


def test_a_semicolon_silences_the_last_expression(kernel: Kernel) -> None:
    result = kernel.run(turn(f"o = {code('41;')}\nEV.append(o.result_text)\n{code('42')}"))
    assert [m["content"]["data"]["text/plain"] for m in result.of("execute_result")] == ["42"]
    assert events(kernel) == [None]


def test_help_prints_for_the_model_and_opens_no_pager(kernel: Kernel) -> None:
    result = kernel.run(turn(f"o = {code('len?')}\nEV.append('Return the number' in o.stdout)"))
    assert result.reply["payload"] == []
    assert events(kernel) == [True]


# ---------------------------------------------------------------------- failures of inner code
def test_a_failing_inner_run_does_not_fail_the_cell_and_is_labelled(kernel: Kernel) -> None:
    body = f"o = {code('x = 1' + chr(10) + 'x / 0')}\nEV.append((o.error.name, o.error.message, o.error.traceback))"
    result = kernel.run(turn(body))
    assert (result.status, result.messages) == ("ok", [])
    ((name, message, trace),) = events(kernel)
    assert (name, message) == ("ZeroDivisionError", "division by zero")
    assert trace == "Cell In[5.2], line 2\n    x / 0\nZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("1 +", "SyntaxError"),
        ("if True:\nx", "IndentationError"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("quit()", "SystemExit"),
        ("exit", "SystemExit"),
        ("input('?')", "InputUnavailable"),
        ("import getpass; getpass.getpass()", "InputUnavailable"),
        ("%nosuchmagic", "UsageError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise ExceptionGroup('g', [ValueError(1)])", "ExceptionGroup"),
        ("class E(Exception):\n    def __str__(self): 1/0\nraise E", "E"),
        ("%%agent\nasync def turn(): pass", "NestedTurn"),
        ("await get_ipython().run_cell_magic('agent', '--awaitable', 'async def turn(): pass')", "NestedTurn"),
        ("import asyncio; await asyncio.wait_for(asyncio.sleep(5), .01)", "TimeoutError"),
    ],
)
def test_what_inner_code_raises_is_an_outcome_and_nothing_else(kernel: Kernel, source: str, name: str) -> None:
    result = kernel.run(turn(f"o = {code(source)}\nEV.append((o.error.name, o.error.traceback))"))
    ((found, trace),) = events(kernel)
    assert (found, result.status) == (name, "ok"), trace
    assert result.of("error") == []


def test_a_failing_repr_goes_to_stderr_and_does_not_fail_the_cell(kernel: Kernel) -> None:
    source = "class R:\n    def __repr__(self): 1/0\nR()"
    result = kernel.run(turn(f"o = {code(source)}\nEV.append((o.error, 'ZeroDivisionError' in o.stderr))"))
    assert result.status == "ok"
    assert events(kernel) == [(None, True)]


def test_debug_finds_the_inner_frame(kernel: Kernel) -> None:
    kernel.run(turn(code("def f():\n    inner = 7\n    1/0\nf()")))
    result = kernel.run("%debug", answers=["p inner", "q"])
    assert "7" in result.stream()


# ---------------------------------------------------------------------- await, sync host
def test_inner_code_may_await(kernel: Kernel) -> None:
    result = kernel.run(turn(f"o = {code('import asyncio; await asyncio.sleep(.05); print(7)')}\nEV.append(o.stdout)"))
    assert result.stream() == "7\n"
    assert events(kernel) == ["7\n"]


def test_the_engine_goes_on_while_inner_code_blocks(kernel: Kernel) -> None:
    body = f"""
        async def tick():
            while True:
                EV.append(1); await asyncio.sleep(.01)
        t = asyncio.create_task(tick())
        {code("import time" + chr(10) + "while len(EV) < 8: time.sleep(.01)" + chr(10) + "EV.append('seen')")}
        t.cancel()
    """
    kernel.run(turn(body))
    assert "seen" in events(kernel)


def test_displays_are_updated_while_inner_code_awaits(kernel: Kernel) -> None:
    source = "import asyncio; EV.append('begun')\nwhile 'shown' not in EV: await asyncio.sleep(.01)\nEV.append('ended')"
    body = f"""
        await show('a', update=False)
        t = asyncio.create_task(kernel.run_code({source!r}, label='1'))
        while 'begun' not in EV: await asyncio.sleep(.01)
        await show('b')
        EV.append('shown'); await t
    """
    kernel.run(turn(body))
    assert events(kernel) == ["begun", "shown", "ended"]


@pytest.mark.parametrize("first", ["%%time\n%%agent", "%%capture out\n%%agent"])
def test_a_turn_works_inside_other_magics(kernel: Kernel, first: str) -> None:
    body = f"o = {code('print(6)')}\nEV.append(o.stdout)\np = {code('import asyncio; await asyncio.sleep(0)')}\nEV.append(p.error.name)"
    assert kernel.run(turn(body, first=first)).status == "ok"
    assert events(kernel) == ["6\n", "RuntimeError"]


def test_stop_works_inside_time(kernel: Kernel) -> None:
    result = kernel.run(turn(f"print('GO', flush=True)\n{SLEEP}", first="%%time\n%%agent"), stop_at="GO")
    assert result.status == "error"


# ---------------------------------------------------------------------- state that is kept
def test_history_number_and_results_are_the_outer_cells(kernel: Kernel) -> None:
    result = kernel.run(turn(f"{code('5')}\n{code('6')}"))
    number = result.reply["execution_count"]
    after = kernel.run(f"print(_, Out[{number}], len(In), [i for i in In if i in ('5', '6')])")
    assert after.reply["execution_count"] == number + 1
    assert after.stream() == f"6 6 {number + 2} []\n"
    raw = kernel.run("%history").stream()
    assert "%%agent" in raw


def test_nothing_of_the_shell_stays_replaced(kernel: Kernel) -> None:
    kernel.run(turn(f"{code('1/0')}\n{code('print(1)')}"))
    check = """
        import sys, builtins
        ip = get_ipython()
        parts = (ip, ip.displayhook, ip.display_pub, ip.compile, sys.stdout, sys.stderr, ip.payload_manager)
        found = [k for o in parts for k, v in vars(o).items() if str(getattr(v, '__module__', '')).startswith('nbagent')]
        print(found, builtins.input.__qualname__)
    """
    assert kernel.run(textwrap.dedent(check)).stream() == "[] Kernel.raw_input\n"
    assert kernel.run("1/0").reply["ename"] == "ZeroDivisionError"


def test_the_body_arrives_as_typed(kernel: Kernel) -> None:
    body = "async def turn(): pass  # {x} $HOME é {{ }} what?  \n>>> 1\n\n"
    cell = "%%agent\n'''\n>>> a\n'''\n" + body.replace(">>> 1", "'>>> 1'")
    for typed in (cell, cell.rstrip("\n"), cell + "\n"):
        assert kernel.run(typed).status == "ok"
        assert kernel.run("print(repr(BODIES[-1]))").stream().strip() == repr(typed.removeprefix("%%agent\n"))


def test_cells_of_the_person_are_tracked_and_the_agents_are_not(kernel: Kernel) -> None:
    kernel.run("TRACKER.take()")
    kernel.run("a = 1", cell_id="c1")
    kernel.run("get_ipython().run_cell('b = 1');", cell_id="c2")
    kernel.run(turn(code("c = 1")), cell_id="c3")
    kernel.run("  ")
    kernel.run("1/0", cell_id="c4")
    result = kernel.run("for c in TRACKER.take(): print(c.source, c.cell_id, c.succeeded)")
    lines = result.stream().splitlines()
    assert lines[-3:] == ["a = 1 c1 True", "get_ipython().run_cell('b = 1'); c2 True", "1/0 c4 False"]


# ---------------------------------------------------------------------- variables, questions
def test_variables_and_summaries(kernel: Kernel) -> None:
    kernel.run(
        "import pandas as pd; df = pd.DataFrame({'a': [1, None], 'b': list('xy')}); api_key = 'k' * 30; _x = 1",
    )
    body = """
        EV.append([v.name for v in await kernel.variables() if v.name in ('df', 'api_key', 'pd', '_x', 'In', 'exit', 'open')])
        df, key, no = await kernel.inspect(['df', 'api_key', 'nothing'])
        EV.append((df.shape, '1 null' in df.text, key.text, no.exists))
        EV.append(await kernel.attach('nothing'))
    """
    kernel.run(turn(body))
    names, (shape, has_nulls, secret, exists), attached = events(kernel)  # type: ignore[misc]
    assert names == ["api_key", "df"]
    assert (shape, has_nulls, exists, attached) == ("(2, 2)", True, False, None)
    assert "kkk" not in secret


def test_ask_is_answered_by_the_person_or_by_nobody(kernel: Kernel) -> None:
    body = "EV.append(await kernel.ask('sure? '))"
    kernel.run(turn(body), answers=["yes"])
    kernel.run(turn(body), allow_stdin=False)
    assert events(kernel) == ["yes", None]


# ---------------------------------------------------------------------- stop
def test_stop_while_waiting_for_the_model(kernel: Kernel) -> None:
    assert_stopped(kernel.run(turn(f"print('GO', flush=True)\n{SLEEP}"), stop_at="GO"))


@pytest.mark.parametrize(
    "source",
    [
        "print('GO', flush=True)\nwhile True: pass",
        f"import time; print('GO', flush=True); time.sleep({FOREVER_S})",
        f"import asyncio; print('GO', flush=True); {SLEEP}",
        "import asyncio; await asyncio.sleep(0); print('GO', flush=True)\nwhile True: pass",
        "import asyncio\nasync def f():\n    print('GO', flush=True)\n    while True: pass\nawait asyncio.gather(f(), asyncio.sleep(9))",
        "while True: print('GO ' * 20)",
    ],
)
def test_stop_in_inner_code(kernel: Kernel, source: str) -> None:
    body = f"""
        try:
            {code(source)}
        except asyncio.CancelledError as e:
            EV.append((type(e).__name__, e.outcome.stopped, e.outcome.error.name, 'GO' in e.outcome.stdout)); raise
    """
    assert_stopped(kernel.run(turn(body), stop_at="GO"))
    assert events(kernel) == [("CodeCancelled", True, "KeyboardInterrupt", True)]


@pytest.mark.parametrize(
    ("first", "sleeps"),
    [
        ("%%agent", f"import time; time.sleep({FOREVER_S})"),
        ("%%agent", f"import asyncio; {SLEEP}"),
        ("%%time\n%%agent", f"import time; time.sleep({FOREVER_S})"),
    ],
)
def test_code_that_waits_behind_a_drawing_when_stop_comes_does_not_run(kernel: Kernel, first: str, sleeps: str) -> None:
    """The cell's thread takes the code up before the engine's thread has heard of Stop."""
    body = f"""
        begun = threading.Event()
        shell.user_ns["begun"] = begun
        def draws():
            print("GO", flush=True)
            while not PRESSED: time.sleep(.01)
        def busy():
            while not PRESSED: time.sleep(.01)
            begun.wait(1)
        jobs.post(draws)
        asyncio.get_running_loop().call_soon(busy)
        {code(f"EV.append('ran'); begun.set(); {sleeps}")}
    """
    result = kernel.run(turn(body, first=first), stop_at="GO")
    assert result.status == "error", result.told()
    assert events(kernel) == []


@pytest.mark.parametrize("first", ["%%agent", "%%time\n%%agent"])
def test_a_stop_that_another_thread_gets_reaches_the_code(kernel: Kernel, first: str) -> None:
    """The system gives a process's signal to any of its threads; a call that waits on the main one goes on then."""
    body = f"""
        running = asyncio.create_task(kernel.run_code("EV.append('begun')\\nimport time; time.sleep({FOREVER_S})", label='1'))
        while not EV: await asyncio.sleep(.01)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        await running
    """
    assert kernel.run(turn(body, first=first)).status == "error"
    assert events(kernel) == ["begun"]


@pytest.mark.parametrize("first", ["%%agent", "%%time\n%%agent"])
def test_every_stop_that_another_thread_gets_reaches_code_that_swallows_the_first(kernel: Kernel, first: str) -> None:
    source = f"import time\\nfor n in (1, 2, 3):\\n  EV.append(n)\\n  try: time.sleep({FOREVER_S})\\n  except KeyboardInterrupt: pass"
    body = f"""
        running = asyncio.create_task(kernel.run_code("{source}", label='1'))
        for n in (1, 2, 3):
            try:
                while n not in EV: await asyncio.sleep(.01)
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
                while len(PRESSED) < n: await asyncio.sleep(.01)
            except asyncio.CancelledError: pass
        await running
    """
    kernel.run(turn(body, first=first))
    assert [event for event in events(kernel) if event != "pending"] == [1, 2, 3]


def test_a_stop_that_the_code_has_heard_is_not_sent_again(kernel: Kernel) -> None:
    """What the code does then, its own clean-up say, would be cut by a second one."""
    source = "import time\\ntry: EV.append(1); time.sleep(3600)\\nexcept KeyboardInterrupt:\\n  while 2 not in EV: time.sleep(.01)"
    body = f"""
        from nbagent.notebook import interrupts
        running = asyncio.create_task(kernel.run_code("{source}", label='1'))
        while not EV: await asyncio.sleep(.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        try: {SLEEP}
        except asyncio.CancelledError: pass
        await asyncio.sleep(interrupts.NUDGE_S * 2)  # asked for after the nudge, so it ends after it
        EV.append(2)
        await running
    """
    kernel.run(turn(body))
    assert kernel.run("print(len(PRESSED))").stream() == "1\n"
    assert events(kernel) == [1, 2]


def test_stop_in_a_question(kernel: Kernel) -> None:
    assert_stopped(kernel.run(turn("await kernel.ask('sure?')"), answers=[None]))


def test_queued_cells_do_not_run_after_stop(kernel: Kernel) -> None:
    first = kernel.send(turn(f"print('GO', flush=True)\n{SLEEP}"))
    second = kernel.send("print('must not run')")
    assert_stopped(kernel.finish(first, at=[("GO", kernel.stop)]))
    assert kernel.reply_to(second)["status"] in ("aborted", "error")


def test_what_the_body_says_after_stop_is_what_the_cell_shows(kernel: Kernel) -> None:
    body = f"""
        try:
            print('GO', flush=True); {SLEEP}
        except asyncio.CancelledError:
            await asyncio.sleep(.05); await show('kept', update=False); EV.append('clean')
            raise TurnStopped('Stopped after step 2.') from None
    """
    result = kernel.run(turn(body), stop_at="GO")
    assert_stopped(result, "Stopped after step 2.")
    assert result.of("display_data")
    assert events(kernel) == ["clean"]


def test_a_body_that_returns_after_stop_gives_its_value(kernel: Kernel) -> None:
    body = f"try:\n    print('GO', flush=True); {SLEEP}\nexcept asyncio.CancelledError:\n    return 'kept'"
    result = kernel.run(turn(body), stop_at="GO")
    assert result.status == "ok"
    assert result.of("execute_result")[0]["content"]["data"]["text/plain"] == "'kept'"


def test_a_second_stop_does_not_cut_the_clean_up(kernel: Kernel) -> None:
    """Neither on the engine nor on the cell's thread; each press has arrived before the clean-up goes on."""
    body = f"""
        def last():
            print('FOURTH', flush=True)
            while len(PRESSED) < 4: time.sleep(.01)
        try:
            print('FIRST', flush=True); {SLEEP}
        finally:
            for number, word in ((2, 'SECOND'), (3, 'THIRD')):
                while len(PRESSED) < number - 1: await asyncio.sleep(.01)  # else two presses may be one signal
                print(word, flush=True)
                while len(PRESSED) < number: await asyncio.sleep(.01)
            await jobs.on_main(last); EV.append('clean')
    """
    result = kernel.run(turn(body), stop_at=["FIRST", "SECOND", "THIRD", "FOURTH"])
    assert_stopped(result)
    assert events(kernel) == ["clean"]


def test_a_clean_up_without_end_is_given_up(kernel: Kernel) -> None:
    body = f"""
        host.CLEANUP_S, patient = .1, host.CLEANUP_S
        try:
            print('GO', flush=True); {SLEEP}
        finally:
            try: {SLEEP}
            finally: host.CLEANUP_S = patient; EV.append('cut')
    """
    assert_stopped(kernel.run(turn(body), stop_at="GO"))
    until(lambda: events(kernel) == ["cut"])
    assert host.CLEANUP_S == 3.0  # what a person is asked to wait


def test_code_that_swallows_a_stop_ends_at_the_next(kernel: Kernel) -> None:
    source = f"""
        import time
        try:
            print('GO', flush=True); time.sleep({FOREVER_S})
        except KeyboardInterrupt: pass
        while 'pending' not in EV: time.sleep(.01)
        print('AGAIN', flush=True)
        time.sleep({FOREVER_S})
    """
    assert_stopped(kernel.run(turn(code(source)), stop_at=["GO", "AGAIN"]))
    assert events(kernel) == ["pending"]


def test_the_display_is_told_when_native_code_delays_the_stop(kernel: Kernel) -> None:
    result = kernel.run(turn(code(native_code("'pending' in EV"))), stop_at="GO")
    assert_stopped(result)
    assert "NATIVE ENDED" not in result.stream()
    assert events(kernel) == ["pending"]


def test_native_code_that_holds_the_lock_ends_first(kernel: Kernel) -> None:
    # several calls: while one runs, nothing else does, and "GO" could not be told before the only one ends
    result = kernel.run(turn(code("print('GO', flush=True)\nwhile True: sum(range(10_000_000))")), stop_at="GO")
    assert_stopped(result)


def test_a_timeout_of_the_caller_interrupts_the_code_and_the_turn_goes_on(kernel: Kernel) -> None:
    body = f"""
        for source in ("import time; time.sleep({FOREVER_S})", "while True: pass", "import asyncio; {SLEEP}"):
            EV.clear()
            running = asyncio.create_task(kernel.run_code("EV.append('begun')\\n" + source, label='1'))
            while not EV: await asyncio.sleep(.01)
            try: await asyncio.wait_for(running, .01)
            except TimeoutError: ENDED.append('timeout')
        o = await kernel.run_code("print('goes on')", label='2'); ENDED.append(o.stdout)
        EV[:] = ENDED
    """
    result = kernel.run(turn("ENDED = []\n" + textwrap.dedent(body)))
    assert (result.status, events(kernel)) == ("ok", ["timeout"] * 3 + ["goes on\n"])


def test_agent_code_cannot_take_the_stop_away(kernel: Kernel) -> None:
    body = f"{code('import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);')}\nprint('GO', flush=True)\n{SLEEP}"
    assert_stopped(kernel.run(turn(body), stop_at="GO"))


def test_the_kernel_survives_many_stops(kernel: Kernel) -> None:
    for _ in range(5):
        assert_stopped(kernel.run(turn(code("print('GO', flush=True)\nwhile True: pass")), stop_at="GO"))
        assert kernel.run("1 + 1").of("execute_result")


def test_jobs_of_tasks_that_outlive_the_cell_are_refused(kernel: Kernel) -> None:
    body = """
        async def late():
            while 'ended' not in EV: await asyncio.sleep(.01)
            try: await jobs.on_main(print, 'late')
            except Exception as e: EV.append(type(e).__name__)
        engine.late = asyncio.create_task(late())
    """
    kernel.run(turn(body))
    kernel.run("import time; EV.append('ended')\nwhile len(EV) < 2: time.sleep(.01)")
    assert events(kernel) == ["ended", "CellEnded"]


# ---------------------------------------------------------------------- comms
def test_a_comm_message_during_a_cell_does_not_lose_its_figure(kernel: Kernel) -> None:
    kernel.run(
        "import comm, host_magic; C = comm.create_comm(target_name='t'); host_magic.free_comm(C)\n"
        "C.on_msg(lambda m: EV.append('message'))\nimport asyncio, matplotlib.pyplot as plt",
    )
    comm_id = kernel.run("print(C.comm_id)").stream().strip()
    message = kernel.client.session.msg("comm_msg", {"comm_id": comm_id, "data": {}})
    result = kernel.run(
        "plt.plot([1, 2]); print('GO', flush=True); await asyncio.sleep(.5); print(len(plt.gca().lines))",
        at=[("GO", lambda: kernel.client.shell_channel.send(message))],
    )
    assert result.stream().split() == ["GO", "1"]
    assert len(result.of("display_data")) == 1
    until(lambda: events(kernel) == ["message"])


def test_unloading_leaves_no_transformer_and_no_thread(kernel: Kernel) -> None:
    source = "%unload_ext host_magic\nimport threading; print([t.name for t in threading.enumerate() if 'nbagent' in t.name])"
    assert kernel.run(source).stream() == "[]\n"
    check = "print([t for t in get_ipython().input_transformers_cleanup if 'Agent' in type(t).__name__])"
    assert kernel.run(check).stream() == "[]\n"
    kernel.run("%load_ext host_magic")
