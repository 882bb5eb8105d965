"""nbtools: run, check and read the notebooks.

    inside     what a notebook's own cells call: check_parameters, check_exercise, emit_results
    cells      notebook -> its parts: tagged cells, declared parameters, recipe, hash; run_recipe, read_results
    run        notebook + parameters -> executed notebook (papermill, fresh kernel, wall limit)
    form       notebook -> what is wrong with its form, each with the command that mends it
    index      notebooks/index.yml -> Entry, Band, Break; results + bands -> which fail
    exercises  notebook + notebooks/solutions/NN.py -> do the checks tell right from wrong?
    export     executed notebook -> one HTML page and its PNG figures

`python -m cookbook.nbtools run 40` runs one and stores its outputs; `check 40` says what its form lacks.
This file imports only `inside`, so that a notebook's first cell stays quick.
"""

from cookbook.nbtools.inside import check_exercise, check_parameters, emit_results

__all__ = ["check_exercise", "check_parameters", "emit_results"]
