"""Which setting of Spark wins: the dataset's, the user's file, or this project's."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from dsp_gym.errors import DatasetError
from spark_pipelines.session import SETTINGS, _refuse_master, defaults_file

FILE = """\
# the whole cluster
spark.sql.files.maxPartitionBytes  16m
spark.sql.session.timeZone=Europe/Berlin
spark.driver.extraJavaOptions -XX:+UseSerialGC -Dmine=1
spark.executorEnv.NUMBA_NUM_THREADS: 2
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "spark-defaults.conf").write_text(FILE)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("spark://local-cluster[2,1,1024]", "--master 'local-cluster[2,1,1024]'"),
        ("spark://local[4]", "--master 'local[4]'"),
        ("spark://host", "--master spark://host:7077"),
    ],
)
def test_a_url_that_is_no_master_s_is_refused_with_the_one_that_is_meant(master, said):
    with pytest.raises(DatasetError) as found:
        _refuse_master(master)
    assert said in str(found.value)
    assert "--master" in str(found.value)


@pytest.mark.parametrize("master", ["local[*]", "yarn", "spark://a:7077", "spark://a:1,b-2.c:2"])
def test_masters_that_spark_knows_are_left_to_it(master):
    _refuse_master(master)


def test_the_file_is_read_where_spark_reads_it(folder):
    assert defaults_file() == {
        "spark.sql.files.maxPartitionBytes": "16m",
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Dmine=1",
        "spark.executorEnv.NUMBA_NUM_THREADS": "2",
    }


def test_without_a_file_nothing_is_set(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert defaults_file() == {}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.validate
def test_the_users_file_wins_over_the_project_and_a_dataset_wins_over_the_file(folder):
    code = (
        "import json\n"
        "from spark_pipelines.sweep import EXECUTORS\n"
        "from spark_pipelines.session import spark_session\n"
        "own = {'spark.sql.session.timeZone': 'Asia/Tokyo'}\n"
        "with spark_session('test', 'local[1]', own, defaults=EXECUTORS) as spark:\n"
        "    print(json.dumps(dict(spark.sparkContext.getConf().getAll())))\n"
    )
    env = {**os.environ, "SPARK_CONF_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    conf = json.loads(done.stdout.splitlines()[-1])
    assert conf["spark.sql.files.maxPartitionBytes"] == "16m"
    assert conf["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert conf["spark.executorEnv.NUMBA_NUM_THREADS"] == "2"
    assert conf["spark.executorEnv.OMP_NUM_THREADS"] == "1"
    assert conf["spark.driver.memory"] == SETTINGS["spark.driver.memory"]
    options = conf["spark.driver.extraJavaOptions"]  # after those that Spark adds itself
    assert "-XX:+UseSerialGC -Dmine=1 -Dlog4j2.configurationFile=" in options
    assert "UseParallelGC" not in options
