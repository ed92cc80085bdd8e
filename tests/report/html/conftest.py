"""Stories to be told: invented runs, as consistent as real ones."""

import math
from types import SimpleNamespace

import pytest

from dsup.core.ledger import LOST, Balance
from dsup.core.verdict import LOOKED_AT, Advice, Evidence, Looked, Verdict, Victim
from dsup.facts.samples import Sample
from dsup.report.html.lives import Attempt, RankLife, Signal
from dsup.report.html.story import Frame, Stack, Story, Todo, Told, of_log

START_S = 1796047220.0  # 2026-11-30 14:00:20 UTC
GIB = 1 << 20
RUN = "20261130T140020Z-train-7f3a_gpu-a17"


def oom(attempt, at_s, ranks=8, first=5):
    """Return the verdict of a rank that the kernel killed."""
    pid = 41877 - 100 * (1 - attempt)
    victims = (4, 6) if ranks > 6 else ()
    others = tuple(r for r in range(ranks) if r not in {first, *victims})
    return Verdict(
        attempt=attempt,
        cause="host_oom",
        first_ranks=(first,),
        certainty="proven",
        at_s=at_s,
        summary=f"Rank {first} was killed by the kernel: "
        "the cgroup reached its 400 GiB limit.",
        rule="oom_memcg",
        evidence=(
            Evidence(
                "kernel",
                f"Memory cgroup out of memory: Killed process {pid} (python) "
                "total-vm:284114932kB, anon-rss:168820736kB, file-rss:81920kB, "
                "shmem-rss:2097152kB, UID:1000 pgtables:331776kB oom_score_adj:500"
                " [kmsg seq 918204]",
                first,
                at_s,
            ),
            Evidence(
                "kernel",
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),"
                "oom_memcg=/system.slice/dsup@llm7b.service,task_memcg=/system.slice/"
                f"dsup@llm7b.service/rank_5,task=python,pid={pid},uid=1000"
                " [kmsg seq 918203]",
                first,
                at_s,
            ),
            Evidence(
                "status",
                f"rank {first} (pid {pid}) ended by SIGKILL; dsup had sent no signal",
                first,
                at_s + 1.58,
                "events.jsonl",
                3121,
            ),
            Evidence("counters", "memory.events: oom_kill 1 -> 2 since spawn", None),
            Evidence(
                "samples",
                f"rank {first} 33.9 -> 161 GiB in 17 min 46 s, +7.2 GiB/min; "
                "the others 34 GiB, flat",
                first,
                at_s - 9,
            ),
            *(
                Evidence(
                    "stderr",
                    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525]"
                    " Connection closed by peer [10.4.0.17]:50213",
                    rank,
                    at_s + 1.59,
                    f"attempt_{attempt}/{rank}/stderr.log",
                    88,
                )
                for rank in victims[:1]
            ),
            Evidence("nvml", f"{LOOKED_AT}: Xid and ECC of all 8 GPUs, no change"),
        ),
        victims=tuple(
            Victim(rank, first, f"connection closed by peer, exit 1, +1.6{rank} s")
            for rank in victims
        ),
        ended_by_dsup=others,
        advice=Advice(
            "find_leak",
            f"look at what only rank {first} keeps in memory: its data shard, a cache, "
            "rank-specific logging; a higher limit only delays it",
        ),
        status=-9,
        signature="host_oom memcg rank-growth",
        looked=(
            Looked("obstacle"),
            Looked("hang"),
            Looked("oom_memcg", "host_oom", (first,)),
            Looked("killed", "killed", (first,)),
        ),
    )


def life(rank, start_s, began_s, verdict, step):
    """Return one rank of an attempt that died."""
    spread = (rank * 7919 % 100) / 100
    roles = {v.rank for v in verdict.victims}
    if rank in verdict.first_ranks:
        end_s, status = began_s + 1.58, verdict.status
    elif rank in roles:
        end_s, status = began_s + 1.6 + rank % 10 / 100, 1
    else:
        end_s, status = began_s + 1.9 + 1.05 * spread, -15
    return RankLife(
        rank,
        start_s + 0.01 * (rank % 8),
        end_s,
        status,
        node="gpu-a17",
        pid=41872 + rank,
        ready_s=start_s + 105,
        step=step,
    )


def samples(ranks, first, start_s, end_s, count=130):
    """Return memory of ranks, of which one leaks."""
    found = []
    for number in range(count):
        share = number / (count - 1)
        up_s = share * (end_s - start_s)
        load = min(1.0, up_s / 110)
        rss = {r: int(load * 34 * GIB) for r in range(ranks)}
        rss[first] = int(load * 34 * GIB + max(0, up_s - 110) / 60 * 7.2 * GIB)
        found.append(
            Sample(
                start_s + up_s,
                rss,
                cgroup_kb=sum(rss.values()),
                limit_kb=400 * GIB,
                phases=dict.fromkeys(rss, "init" if up_s < 105 else "train"),
            )
        )
    return tuple(found)


def attempt(number, start_s, lived_s, ranks=8, first=5, **more):
    """Return an attempt that died of memory."""
    began_s = start_s + lived_s
    verdict = oom(number, began_s, ranks, first)
    step = 12000 + int(0.72 * (lived_s - 105))
    lives = tuple(life(r, start_s, began_s, verdict, step) for r in range(ranks))
    gone_s = max(one.end_s for one in lives)
    found = Attempt(
        number=number,
        start_s=start_s,
        end_s=gone_s + 0.02,
        ranks=lives,
        verdict=verdict,
        signals=(Signal(began_s + 1.583, 15, verdict.ended_by_dsup),),
        from_step=12000 + 800 * number,
        stepped=((start_s + 106 + 60 * number, 12001), (began_s - 1, step)),
        checkpoints=tuple(
            start_s + 105 + 250 * k for k in range(1, int(lived_s / 250))
        ),
        samples=samples(min(ranks, 8), first, start_s, began_s),
    )
    return found._replace(**more)


def run(ranks=8, attempts=2, lived_s=1168.0, first=5):
    """Return the story of a run that died of memory in each attempt."""
    lives = []
    start_s = START_S
    for number in range(attempts):
        lives.append(attempt(number, start_s, lived_s, ranks, first))
        start_s = lives[-1].end_s + 10
    told = [Told(one.verdict, "gpu-a17", "attempt 1 was started") for one in lives]
    told[-1] = told[-1]._replace(next_text="", ended=(137, "rank"))
    return Story(
        name=RUN,
        program="train.py",
        nodes=("gpu-a17",),
        world_size=ranks,
        attempts=tuple(lives),
        told=tuple(told),
        outcome="the run was given up with exit code 137: --max-restarts 1 is used up",
        panel=("━━ dsup ━ attempt 1 failed ━━", "Rank 5 was killed by the kernel."),
        todo=(
            Todo(told[-1].verdict.advice.text, "tail -n 50 attempt_1/5/stderr.log"),
            Todo(
                "Then launch again: checkpoint 13600 is complete; 52 steps are lost.",
                "dsup launch --nproc=8 train.py",
            ),
        ),
        output_place="attempt_1/5/stderr.log",
        output=tuple(f"step {n} loss 2.{n}" for n in range(20)),
        kernel=("Memory cgroup out of memory: Killed process 41877 (python)",),
        command="dsup launch --nproc=8 train.py --batch 512",
        versions=(("dsup", "0.4.0"), ("Linux", "6.12"), ("Python", "3.11.7")),
        options=(("nproc", "8", "command line"), ("settle", "2.0", "default")),
        environment=(("NCCL_DEBUG", "WARN"),),
        directory=f"/runs/{RUN}",
        made_s=lives[-1].end_s + 3,
        spent=spent(lives),
    )


def spent(lives):
    """Return where the time of attempts that made steps went."""
    lost = dict.fromkeys(LOST, 0.0)
    wall_s = lives[-1].end_s - lives[0].start_s
    lost |= {"start_up": 104.0 * len(lives), "recomputed": 62.0, "pause": 10.0}
    return Balance(wall_s, wall_s - sum(lost.values()), lost, True, len(lives))


def of_few_words(verdict, lives=None, **more):
    """Return the story of one attempt with this verdict."""
    began_s = verdict.at_s
    if lives is None:
        lives = tuple(life(r, START_S, began_s, verdict, None) for r in range(8))
        lives = tuple(one._replace(ready_s=None) for one in lives)
    end_s = max([began_s, *(one.end_s for one in lives if one.end_s)])
    found = Attempt(verdict.attempt, START_S, end_s, lives, verdict)
    story = run()._replace(
        attempts=(found,),
        told=(Told(verdict, "gpu-a17", "", (1, "rank")),),
        todo=(Todo("read the traceback and fix the script"),),
    )
    return story._replace(**more)


def hang():
    """Return the story of a rank that never came to a collective."""
    verdict = Verdict(
        attempt=0,
        cause="hang",
        first_ranks=(3,),
        certainty="proven",
        at_s=START_S + 900,
        summary="Rank 3 hung before all_reduce #1041; the other 7 wait for it there.",
        rule="flight_recorder",
        evidence=(
            Evidence("log", "rank 3 finished #1040; ranks 0-2, 4-7 are inside #1041"),
            Evidence("heartbeat", "step 520, phase train", 3, START_S + 900),
        ),
        ended_by_dsup=tuple(range(8)),
        advice=Advice("check_mount", "check the mount nas2:/train"),
    )
    lives = tuple(
        RankLife(r, START_S, START_S + 1053 + r / 10, -15, pid=41900 + r, step=520)
        for r in range(8)
    )
    head = "Current thread 0x00007f (most recent call first):"
    frames = 'File "dataloader.py", line 1285 in _try_get_data'
    calls = 'File "train.py", line 50 in step'
    waits = 'File "comm.py", line 12 in all_reduce'
    return of_few_words(
        verdict,
        lives,
        stacks=(
            Stack(0, f'{head}\n  {waits}\n  File "train.py", line 203 in train'),
            Stack(
                3,
                f'{head}\n  {frames}\n  {calls}\n  File "train.py", line 203 in train',
            ),
        ),
    )


def unknown():
    """Return the story of a death that nobody can explain."""
    verdict = Verdict(
        attempt=0,
        cause="unknown",
        first_ranks=(6,),
        certainty="unknown",
        at_s=START_S + 40,
        summary="Rank 6 ended with exit code 1 and said nothing; "
        "no cause could be found.",
        rule="silent",
        evidence=(Evidence("status", "rank 6: exit code 1", 6, START_S + 40),),
        ended_by_dsup=(0, 1, 2, 3, 4, 5, 7),
        would_change=("The kernel log could not be read (grant CAP_SYSLOG).",),
    )
    return of_few_words(verdict)


HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title="
    "'owned'\"> \x1b[2J\u202e\u2028\x00 {{7*7}} </style></pre></title>"
)
"""What a rank may print."""


def hostile():
    """Return a story whose every text wants to be something else."""
    story = run()
    verdict = story.told[-1].verdict
    verdict = verdict._replace(
        summary=f"Rank 5 {HOSTILE}",
        evidence=tuple(
            one._replace(text=one.text + HOSTILE, file=HOSTILE)
            for one in verdict.evidence
        ),
        victims=tuple(one._replace(how=HOSTILE) for one in verdict.victims),
        signature=HOSTILE,
        would_change=(HOSTILE,),
        rule=HOSTILE,
        looked=(Looked(HOSTILE, HOSTILE),),
    )
    last = story.attempts[-1]._replace(verdict=verdict)
    return story._replace(
        name=HOSTILE,
        program=HOSTILE,
        nodes=(HOSTILE,),
        attempts=(*story.attempts[:-1], last),
        told=(*story.told[:-1], Told(verdict, HOSTILE, HOSTILE, (1, "rank"))),
        outcome=HOSTILE,
        panel=(HOSTILE,),
        todo=(Todo(HOSTILE, HOSTILE),),
        output=(HOSTILE,) * 3,
        output_place=HOSTILE,
        kernel=(HOSTILE,),
        stacks=(Stack(5, HOSTILE),),
        command=HOSTILE,
        versions=((HOSTILE, HOSTILE),),
        options=((HOSTILE, HOSTILE, HOSTILE), (HOSTILE, HOSTILE, "default")),
        environment=((HOSTILE, HOSTILE),),
        remarks=(HOSTILE,),
        directory=HOSTILE,
    )


def finding(at_s=START_S + 50, spans=None, **more):
    """Return what a log tells of one attempt of four ranks."""
    verdict = Verdict(
        attempt=0,
        cause="python_exception",
        first_ranks=(2,),
        certainty="likely",
        at_s=at_s,
        summary="Rank 2 raised ValueError: batch 812 has no labels (train.py:203).",
        rule="log_exception",
        evidence=(
            Evidence("log", "ValueError: batch 812", 2, None, "slurm-12.out", 812),
            Evidence("launcher", "Root Cause: rank 1", 1, None, "slurm-12.out", 912),
        ),
        victims=(Victim(1, 2, "connection reset by peer"),),
        ended_by_dsup=(0, 3),
        advice=Advice("fix_script", "read the traceback and fix the script"),
    )
    if spans is None:
        spans = tuple((r, START_S + r / 10, START_S + 50 + r / 3) for r in range(4))
    return SimpleNamespace(
        verdict=verdict._replace(**more),
        nodes=("n1",),
        launcher="torchrun",
        world_size=4,
        spans=spans,
    )


def log(**more):
    """Return the story of a log with times."""
    frame = Frame("/logs/slurm-12.out", START_S + 999)
    return of_log([finding(**more)], frame=frame)


def no_clock():
    """Return the story of a log without times."""
    spans = tuple((r, 1.0 + r, 800.0 + 9 * r) for r in range(4))
    return log(at_s=math.nan, spans=spans)


MAKERS = {
    "8 ranks": run,
    "1 rank": lambda: run(ranks=1, attempts=1, first=0),
    "16 ranks": lambda: run(ranks=16),
    "64 ranks": lambda: run(ranks=64),
    "1000 ranks": lambda: run(ranks=1000),
    "3 attempts": lambda: run(attempts=3),
    "12 attempts": lambda: run(attempts=12, lived_s=900),
    "40 attempts": lambda: run(attempts=40, lived_s=300),
    "10 hours": lambda: run(attempts=3, lived_s=12000),
    "hang": hang,
    "unknown": unknown,
    "hostile": hostile,
    "log": log,
    "no clock": no_clock,
    "no spans": lambda: log(at_s=math.nan, spans=()),
}
"""Stories that must all be told well."""


@pytest.fixture(params=MAKERS)
def any_story(request):
    """Give every kind of story."""
    return MAKERS[request.param]()


@pytest.fixture
def stories():
    """Give makers of stories, and what they are made of."""
    return SimpleNamespace(
        run=run,
        hang=hang,
        unknown=unknown,
        hostile=hostile,
        hostile_text=HOSTILE,
        log=log,
        finding=finding,
        no_clock=no_clock,
        attempt=attempt,
        of_few_words=of_few_words,
        start_s=START_S,
    )
