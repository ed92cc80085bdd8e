"""Looks at a node as ``dsup doctor`` does; argv: limits and wishes as JSON."""

import json
import os
import resource
import sys

from dsup.checkup.checks.catalogue import CHECKS
from dsup.checkup.finding import exit_code, judged
from dsup.checkup.gather import gather
from dsup.checkup.readings import Asked

limits, wishes = json.loads(sys.argv[1])
for name, limit in limits.items():
    which = getattr(resource, f"RLIMIT_{name}")
    resource.setrlimit(which, (limit, resource.getrlimit(which)[1]))
asked = Asked(**{"environment": dict(os.environ), **wishes})
rows = tuple(judged(CHECKS, gather(asked)))
print(json.dumps([exit_code(rows), [row._asdict() for row in rows]]))
