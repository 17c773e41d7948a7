package dspgym.flink;

import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/** A query on a generated table; its filter counts what it lets pass. */
public final class ZooSql {

    private ZooSql() {}

    /** Submits the query; or, where its results are to be written, adds it to the job of a zoo. */
    static void build(Zoo zoo) {
        if (zoo.writesLines()) {
            buildCounted(zoo);
        } else {
            submit(zoo.folder);
        }
    }

    /** A line for every result: the group, its rows so far, and the last of them. */
    private static void buildCounted(Zoo zoo) {
        StreamTableEnvironment tables = StreamTableEnvironment.create(zoo.environment);
        tables.createTemporarySystemFunction("keep", new Keep(new Truth(zoo.folder, "keep", 50_000)));
        tables.executeSql("CREATE TEMPORARY TABLE events (v INT) WITH ('connector' = 'datagen', "
                + "'rows-per-second' = '8', 'fields.v.kind' = 'sequence', 'fields.v.start' = '0', "
                + "'fields.v.end' = '99999')");
        zoo.lines(tables.toChangelogStream(tables.sqlQuery(
                        "SELECT k, COUNT(*) AS n, MAX(v) AS v FROM (SELECT MOD(v, 100) AS k, v "
                                + "FROM events WHERE keep(v)) GROUP BY k"))
                .filter(row -> row.getKind() != RowKind.UPDATE_BEFORE)
                .map(ZooSql::line)
                .returns(Types.STRING)
                .name("lines"));
    }

    private static String line(Row row) {
        return row.getField("k") + " " + row.getField("n") + " " + row.getField("v");
    }

    private static void submit(String folder) {
        TableEnvironment tables =
                TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().build());
        tables.getConfig().set("pipeline.name", "sql");
        tables.getConfig().set("execution.checkpointing.interval", "5 s");
        tables.getConfig().set("parallelism.default", "1");
        tables.createTemporarySystemFunction("keep", new Keep(new Truth(folder, "keep", 50_000)));
        tables.executeSql("CREATE TEMPORARY TABLE events (k INT) WITH ('connector' = 'datagen', "
                + "'rows-per-second' = '8', 'fields.k.min' = '0', 'fields.k.max' = '99')");
        tables.executeSql("CREATE TEMPORARY TABLE counts (k INT, n BIGINT) WITH "
                + "('connector' = 'blackhole')");
        tables.executeSql("INSERT INTO counts SELECT k, COUNT(*) FROM events WHERE keep(k) GROUP BY k");
    }

    /** Lets half of the numbers pass. */
    public static final class Keep extends ScalarFunction {

        private static final long serialVersionUID = 1;

        private final Truth truth;

        Keep(Truth truth) {
            this.truth = truth;
        }

        @Override
        public void open(FunctionContext context) {
            truth.of(context.getMetricGroup());
        }

        public boolean eval(Integer number) {
            truth.in();
            if (number % 2 == 0) {
                truth.out();
            }
            return number % 2 == 0;
        }
    }
}
