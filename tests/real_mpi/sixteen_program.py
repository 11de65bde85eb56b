"""Run under mpirun on 16 ranks, which take long to start: grids_program.py on 4 x 4, planned_program.py, then
counting_program.py.

Exit code 1 when one of them finds a difference.
"""

from __future__ import annotations

import sys

import counting_program
import grids_program
import planned_program

if __name__ == "__main__":
    different = max(grids_program.main(["4x4"], False), planned_program.main(3))
    sys.exit(max(different, counting_program.main(sys.argv[1:])))
