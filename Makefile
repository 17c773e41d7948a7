# The same targets on a laptop and in CI. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
QUICK_STAMP := $(VENV)/.installed-for-quickstart
# The CPU build of torch is a fraction of the default one and enough for networks of this size.
# Where the default index offers only CUDA builds, name PyTorch's CPU index: TORCH_INDEX=URL.
TORCH_INDEX ?=
# How long the nemesis plays, and which schedule: none is a drawn one.
MINUTES ?= 60
SEED ?=
# Tests of a real Flink wait more than they compute, so there are more of them than cores.
JOBS ?= 5
TESTED := -m 'not validate' --examples 0.3
# What others submitted; name the own folder of an entry whose code you have read.
ENTRIES ?= $(if $(wildcard entries/core-v2/*),--entries entries/core-v2)
EXPERIMENT ?= configs/experiments/quickstart.yaml
JDK_BIN := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/)
FLINK_JAR := dsp_gym/_jars/flink-jobs.jar
OPERATOR_JAR := build/dsp-gym-operator-plugin.jar

# Compiled modules and rewritten assertions are kept from run to run, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: flink-jobs operator-plugin samples notebooks help install quickstart check types layers test faults fuzz docs wheel golden bench reproduce frontier referee film validate validate-flink validate-policies validate-spark clean

help:  ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## Make .venv and install everything into it, torch first (CPU build).

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]'
	@touch $@

$(QUICK_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[plan]'
	@touch $@

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer is needed; none was found." \
		"Name one: make install PYTHON=/path/to/python3" >&2; exit 2; fi
	$(PYTHON) -m venv $(VENV)

# A planning agent needs neither torch nor Spark: a fifth of the whole, which serves where it is there.
# While it learns, another core compiles the rules that it is compared with, into the same cache.
quickstart: $(or $(wildcard $(STAMP)),$(QUICK_STAMP))  ## Train a small agent and compare it with DS2, Justin and Flink's autoscaler on a job it never saw.
	$(BIN)/dsp-gym evaluate $(EXPERIMENT) --policies all --seeds 1 --json > /dev/null 2>&1 & \
	rules=$$!; trap "kill $$rules 2> /dev/null || true" EXIT; \
	$(BIN)/dsp-gym train $(EXPERIMENT); \
	wait $$rules || true
	$(BIN)/dsp-gym evaluate $(EXPERIMENT) --overwrite

check: $(STAMP)  ## Format, lint, types, import layers, small tests: no torch, Spark, Flink (a minute).
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --jobs 2 types layers
	$(BIN)/python -m pytest -m 'not slow and not validate' -x -n 2 -q --dist worksteal

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

# Checkov pins half the world, so it has an environment of its own.
.venv-checkov: constraints.txt
	test -x $@/bin/python || $(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet checkov==3.3.30
	@touch $@

# A server of the API of S3; its boto3 wants an older python-dateutil than Kubernetes' client.
.venv-moto: constraints.txt
	test -x $@/bin/python || $(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet flask==3.1.3 flask-cors==6.0.2 'moto[s3]==5.2.1'
	@touch $@

# RL libraries that nothing else here needs; the rest, torch too, they find in the environment of all.
# RLlib and CleanRL pin another Gymnasium, which they get. So does d3rlpy, an old one without vector
# environments as they are now: it gets the present one, and its other requirements by name.
.venv-clients: WANTED := array-api-compat==1.16.0 skrl==2.1.1 tianshou==2.0.1 torchrl==0.14.1
.venv-cleanrl: WANTED := --no-deps gymnasium==0.29.1
.venv-rllib: WANTED := 'ray[rllib]==2.60.0'
.venv-d3rlpy: WANTED := --no-deps d3rlpy==2.8.1 dataclasses-json==0.6.7 gym==0.26.2 \
	gym-notices==0.1.0 h5py==3.16.0 marshmallow==3.26.2 structlog==26.1.0
.venv-clients .venv-cleanrl .venv-rllib .venv-d3rlpy: constraints.txt $(STAMP)
	test -x $@/bin/python || $(PYTHON) -m venv $@
	site='import site; print(site.getsitepackages()[0])'; \
		$(BIN)/python -c "$$site" > "$$($@/bin/python -c "$$site")/base.pth"
	$@/bin/python -m pip install --quiet $(WANTED)
	@touch $@

# What writes the SBOM of the images, of the same version; its chardet would change what requests does.
.venv-sbom: deploy/Dockerfile
	test -x $@/bin/python || $(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet cyclonedx-bom==7.5.0
	@touch $@

# Without a JDK the tests of a real Flink are skipped; nothing else needs the jar. Tests in a browser
# leave a picture of every page in build/screenshots. Of the examples of a property `make validate`
# tries the other half, too. On a machine that is short of processors a real Flink may miss a deadline:
# tests that failed are run once more without others beside them, and fail at the first that fails again.
test: $(STAMP) $(if $(shell command -v $(JDK_BIN)javac),$(FLINK_JAR) $(OPERATOR_JAR))  ## Run the tests; validate has the longest.
	@$(BIN)/python -m pytest $(TESTED) -n $(JOBS) --dist loadfile --no-loadscope-reorder || { \
		test $$? -eq 1 && echo 'Once more, without others beside them: the tests that failed.' && \
		$(BIN)/python -m pytest $(TESTED) --last-failed --last-failed-no-failures none --exitfirst; }

faults: $(STAMP) $(FLINK_JAR)  ## Kill, freeze, cut off, starve and mislead dsp-gym, Flink and Prometheus for an hour (MINUTES=60; SEED=N to repeat).
	$(BIN)/python -m tests.nemesis --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

fuzz: $(STAMP)  ## Try 100,000 malformed inputs on every reader (hours; goes on where it was stopped: runs/fuzz.json).
	$(BIN)/python -m tests.fuzz $(FUZZ)

flink-jobs: $(FLINK_JAR)  ## Compile the jobs for a real Flink into a jar (needs a JDK 17).

$(FLINK_JAR): $(shell find flink-jobs/src -name '*.java') | $(STAMP)
	@command -v $(JDK_BIN)javac > /dev/null || { echo "No $(JDK_BIN)javac: a JDK 17 is needed to" \
		"compile the Flink jobs. Install one: apt-get install openjdk-17-jdk-headless" >&2; exit 2; }
	rm -rf build/flink-jobs
	mkdir -p build/flink-jobs $(@D)
	$(JDK_BIN)javac --release 17 -proc:none -Xlint:all,-path -Werror -d build/flink-jobs -cp "$$( \
		$(BIN)/python -c 'from dsp_gym.backends.flink.local.distribution import find_libraries as f; print(f().class_path)')" $^
	$(JDK_BIN)jar --create --file build/flink-jobs.jar -C build/flink-jobs .
	mv build/flink-jobs.jar $@

operator-plugin: $(OPERATOR_JAR)  ## Compile the plugin for the autoscaler of Flink's Kubernetes operator (needs a JDK 17).

# What the operator provides at run time is declared, compiled apart, and stays out of the jar.
$(OPERATOR_JAR): $(shell find operator-plugin/src operator-plugin/declarations -type f) | $(STAMP)
	@command -v $(JDK_BIN)javac > /dev/null || { echo "No $(JDK_BIN)javac: a JDK 17 is needed to" \
		"compile the plugin. Install one: apt-get install openjdk-17-jdk-headless" >&2; exit 2; }
	rm -rf build/operator-plugin
	mkdir -p build/operator-plugin/provided build/operator-plugin/classes $(@D)
	flink="$$($(BIN)/python -c \
		'from dsp_gym.backends.flink.local.distribution import find_libraries as f; print(f().class_path)')"; \
	compile="$(JDK_BIN)javac --release 17 -proc:none -Xlint:all,-path -Werror"; \
	$$compile -d build/operator-plugin/provided -cp "$$flink" \
		$$(find operator-plugin/declarations -name '*.java'); \
	$$compile -d build/operator-plugin/classes -cp "build/operator-plugin/provided:$$flink" \
		$$(find operator-plugin/src -name '*.java')
	cp -r operator-plugin/src/META-INF build/operator-plugin/classes/
	$(JDK_BIN)jar --create --file build/operator-plugin.jar --date 2020-01-01T00:00:00Z \
		-C build/operator-plugin/classes .
	mv build/operator-plugin.jar $@

samples: $(STAMP) flink-jobs  ## Record the shipped samples of a real Flink anew (a quarter of an hour on a quiet machine).
	rm -rf dsp_gym/samples/recordings dsp_gym/samples/journals
	$(BIN)/python -m dsp_gym.studies.samples

notebooks: $(STAMP)  ## Run the notebooks and keep their outputs.
	$(BIN)/python docs/execute_notebooks.py

docs: $(STAMP)  ## Build the documentation into site/, refusing broken links.
	$(BIN)/mkdocs build --strict

wheel: $(STAMP)  ## Build the wheel and the source distribution into dist/.
	$(BIN)/python -m build --no-isolation

golden: $(STAMP)  ## Rewrite the recorded trajectories; review the diff.
	$(BIN)/python -m pytest tests/golden --rewrite-golden
	git diff --stat -- tests/golden

bench: $(STAMP)  ## Measure the speed of the environment, alone and with learning, and of decisions over HTTP.
	$(BIN)/dsp-gym bench env
	$(BIN)/dsp-gym bench serve

reproduce: $(STAMP)  ## Recompute the published numbers the model is held to.
	$(BIN)/dsp-gym reproduce

frontier: $(STAMP)  ## Compare policies at equal lateness on core-v2 (hours; goes on where it was stopped): docs/core-v2.md, cards.
	for one in planning family; do for seed in 1 2 3 4; do [ -d runs/$$one-trainings/seed-$$seed/policy ] || \
		$(BIN)/dsp-gym train $$one --seed $$seed --out runs/$$one-trainings/seed-$$seed || exit 1; done; done
	$(BIN)/dsp-gym evaluate core-v2 --trainings planner=runs/planning-trainings \
		--trainings learned-ppo=runs/family-trainings --resume $(ENTRIES)
	cp runs/frontiers/core-v2/report.md docs/core-v2.md
	$(BIN)/python docs/results.py --core-v2 runs/frontiers/core-v2/results.json

referee: $(STAMP)  ## Evaluate the test set of this commit on core-v3 (two hours; goes on where it was stopped): docs/core-v3.md, README and the ledger.
	$(BIN)/dsp-gym evaluate core-v3 --set test --resume
	cp runs/referees/core-v3/test/report.md docs/core-v3.md
	$(BIN)/python docs/results.py --core-v3 runs/referees/core-v3/test/results.json

film: $(STAMP)  ## Draw the README's film: DS2 and the planner on an unseen job and load (a minute).
	$(BIN)/dsp-gym simulate nexmark-q11 --policies ds2,planner --load day-with-crowds --duration 24h \
		--plot docs/figures/ds2-and-planner.gif

validate: $(STAMP) .venv-checkov .venv-clients .venv-cleanrl .venv-d3rlpy .venv-moto .venv-rllib .venv-sbom validate-flink validate-spark  ## Run what takes long (six hours) and write its figures to docs/figures/.
	$(BIN)/python -m pytest -q -n 0 -m 'validate and not acting'
	$(BIN)/python -m pytest -q -n 0 -m 'not validate' tests/properties tests/contracts tests/envs tests/unit
	$(BIN)/python -m pytest -q -n 0 -m acting --record-releases
	$(BIN)/python -m dsp_gym.studies.validation.releases
	-$(BIN)/python -m dsp_gym.studies.bench.sync --out docs/figures/sync.json  # ends with 1 where the bar is missed
	$(BIN)/python docs/generate.py --tables-only
	-$(BIN)/dsp-gym reproduce  # ends with 1 where a bar is missed; docs/reproduction.md says which
	$(BIN)/dsp-gym train configs/experiments/q11.yaml
	$(BIN)/python -m agents.studies.claim configs/experiments/q11.yaml --runs runs/q11/latest \
		--other-jobs nexmark-q1,nexmark-q2,nexmark-q3,nexmark-q5,nexmark-q8 --out docs/figures/q11.json > /dev/null
	$(BIN)/python -m agents.studies.claim configs/experiments/q11.yaml --policy learned-q11 \
		--out docs/figures/q11-shipped.json > /dev/null
	$(BIN)/dsp-gym evaluate configs/experiments/q11.yaml --policies all,learned-q11 \
		--out runs/evaluations/q11 --overwrite
	$(BIN)/dsp-gym train configs/experiments/q11-worldcup.yaml
	$(BIN)/dsp-gym evaluate configs/experiments/q11-worldcup.yaml \
		--policies all,runs/q11-worldcup/latest/policy --out runs/evaluations/q11-worldcup --overwrite
	for name in q11-justin q11-late; do \
		$(BIN)/dsp-gym rollout $$name && $(BIN)/dsp-gym dataset build $$name || exit; \
	done
	$(BIN)/dsp-gym train configs/experiments/q11-cloned.yaml
	$(BIN)/python -m agents.studies.dataset_claim cloning q11-cloned --out docs/figures/q11-cloned.json > /dev/null
	$(BIN)/python -m agents.studies.dataset_claim offline q11-offline --out docs/figures/q11-offline.json > /dev/null
	$(BIN)/dsp-gym bench env --json > docs/figures/bench.json
	$(BIN)/dsp-gym bench shadow --json > docs/figures/bench-shadow.json
	$(BIN)/python docs/results.py --q11 runs/evaluations/q11/results.json \
		--worldcup runs/evaluations/q11-worldcup/results.json
	@$(MAKE) --no-print-directory faults MINUTES=60

VALIDATED := flink-q1 flink-q5 flink-q11 flink-wordcount flink-micro-update flink-large-update
FIGURES := docs/figures/validation

validate-flink: $(STAMP) flink-jobs  ## Hold model, policies and recorder to a real Flink (three hours); docs/validation.md.
	$(BIN)/dsp-gym flink up
	$(BIN)/python -m dsp_gym.studies.validation.flink_runs --data $${DSP_GYM_DATA:-../shared/data} --json \
		> $(FIGURES)/flink-runs.json
	$(BIN)/python -m dsp_gym.studies.validation.few_runs --data $${DSP_GYM_DATA:-../shared/data} --json \
		> $(FIGURES)/few-runs.json
	mkdir -p runs/calibrated
	for job in $(VALIDATED); do \
		$(BIN)/dsp-gym record $$job && \
		$(BIN)/dsp-gym calibrate $$job --out runs/calibrated/$$job.yaml \
			--report runs/calibrated/$$job.html --json > $(FIGURES)/calibrate-$$job.json || exit; \
	done
	$(BIN)/python -m dsp_gym.studies.validation.closed_loop --out $(FIGURES)/closed-loop.json
	$(BIN)/python -m dsp_gym.studies.validation.drive --out $(FIGURES)/drive.json
	$(BIN)/python -m dsp_gym.studies.validation.overhead --out $(FIGURES)/overhead.json
	$(BIN)/python -m dsp_gym.studies.validation.counterfactual --out $(FIGURES)/counterfactual.json
	$(BIN)/dsp-gym flink down
	$(BIN)/python -m dsp_gym.studies.validation.fleet --out $(FIGURES)/fleet.json
	$(BIN)/python -m dsp_gym.studies.validation.healthz --out $(FIGURES)/healthz.json
	$(BIN)/python docs/validation.py

validate-policies: $(STAMP) flink-jobs  ## Compare policies on a real Flink and in simulation (80 runs, about eight hours one after the other; goes on where it was stopped).
	-$(BIN)/dsp-gym validate policies --out $(FIGURES)/policies.json
	$(BIN)/dsp-gym validate prices --simulate --published $(FIGURES)/policies.json --out $(FIGURES)/prices.json
	$(BIN)/python docs/validation.py

validate-spark: $(STAMP)  ## Measure the data pipeline at 20 million rows, and one job with most of them (a quarter of an hour).
	$(BIN)/dsp-gym bench spark --json > docs/figures/spark-20m.json
	DSP_GYM_KILLS=10 $(BIN)/python -m pytest -q -n 0 tests/integration/test_dataset_killed.py

clean:  ## Remove what was built, and the caches; the environment and runs stay.
	rm -rf build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
