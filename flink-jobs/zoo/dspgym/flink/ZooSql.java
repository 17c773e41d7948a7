package dspgym.flink;

import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;

/** A query on a generated table; its filter counts what it lets pass. */
public final class ZooSql {

    private ZooSql() {}

    static void submit(String folder) {
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
