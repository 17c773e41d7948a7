package dspgym.operator;

import java.time.Duration;
import java.util.List;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.ConfigOptions.OptionBuilder;

/** The autoscaler's own options that the plugin reads, with the autoscaler's defaults. */
final class Autoscaler {

    static final String PREFIX = "job.autoscaler.";

    private static final String OLD = "kubernetes.operator." + PREFIX;

    static final ConfigOption<Double> UTILIZATION_TARGET =
            option("utilization.target")
                    .doubleType()
                    .defaultValue(0.7)
                    .withDeprecatedKeys(PREFIX + "target.utilization")
                    .withFallbackKeys(OLD + "utilization.target", OLD + "target.utilization");
    static final ConfigOption<Double> UTILIZATION_BOUNDARY =
            old(option("target.utilization.boundary").doubleType().defaultValue(0.3));
    static final ConfigOption<Double> UTILIZATION_MAX =
            old(option("utilization.max").doubleType().noDefaultValue());
    static final ConfigOption<Double> UTILIZATION_MIN =
            old(option("utilization.min").doubleType().noDefaultValue());
    static final ConfigOption<Duration> CATCH_UP =
            old(option("catch-up.duration").durationType().defaultValue(Duration.ofMinutes(30)));
    static final ConfigOption<Duration> WINDOW =
            old(option("metrics.window").durationType().defaultValue(Duration.ofMinutes(15)));
    static final ConfigOption<Boolean> SCALING_ENABLED =
            old(option("scaling.enabled").booleanType().defaultValue(true));
    static final ConfigOption<Integer> MIN_PARALLELISM =
            old(option("vertex.min-parallelism").intType().defaultValue(1));
    static final ConfigOption<Integer> MAX_PARALLELISM =
            old(option("vertex.max-parallelism").intType().defaultValue(200));
    static final ConfigOption<List<String>> EXCLUDED =
            old(option("vertex.exclude.ids").stringType().asList().defaultValues());
    static final ConfigOption<Double> MAX_SCALE_UP =
            old(option("scale-up.max-factor").doubleType().defaultValue(100_000.0));
    static final ConfigOption<Double> MAX_SCALE_DOWN =
            old(option("scale-down.max-factor").doubleType().defaultValue(0.6));
    static final ConfigOption<Duration> SCALE_DOWN_INTERVAL =
            option("scale-down.interval")
                    .durationType()
                    .defaultValue(Duration.ofHours(1))
                    .withDeprecatedKeys(PREFIX + "scale-up.grace-period")
                    .withFallbackKeys(OLD + "scale-up.grace-period", OLD + "scale-down.interval");
    static final ConfigOption<String> ALIGNMENT =
            old(option("scaling.parallelism-alignment.mode").stringType().defaultValue("BALANCED"));
    static final ConfigOption<Boolean> OBSERVED_SCALABILITY =
            old(option("observed-scalability.enabled").booleanType().defaultValue(false));
    static final ConfigOption<Boolean> EFFECTIVENESS =
            old(
                    option("scaling.effectiveness.detection.enabled")
                            .booleanType()
                            .defaultValue(false));
    static final ConfigOption<List<String>> EXECUTORS =
            old(option("scaling.custom-executors").stringType().asList().defaultValues());

    private Autoscaler() {}

    /** The option that names the class of an executor. */
    static ConfigOption<String> executorClass(String name) {
        return old(
                option("scaling.custom-executor." + name + ".class").stringType().noDefaultValue());
    }

    private static OptionBuilder option(String name) {
        return ConfigOptions.key(PREFIX + name);
    }

    private static <T> ConfigOption<T> old(ConfigOption<T> option) {
        return option.withFallbackKeys("kubernetes.operator." + option.key());
    }
}
