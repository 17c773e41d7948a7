package dspgym.operator;

import java.net.URI;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.Configuration;

/**
 * The plugin's options for one job, below {@code job.autoscaler.metrics.custom-evaluator.NAME.}.
 *
 * @param mode how far dsp-gym may go
 * @param url of {@code dsp-gym shadow}
 * @param tokenFile file with the bearer token
 * @param timeout of a whole request
 * @param policy whose decision is asked for; null: dsp-gym's acting policy
 * @param job the job's name in dsp-gym; null: made of the resource's name and the graph
 * @param mostError mean relative error of past forecasts above which a forecast is ignored
 * @param names of vertices by id, where they are not the ids
 */
record Settings(
        Mode mode,
        URI url,
        Path tokenFile,
        Duration timeout,
        String policy,
        String job,
        double mostError,
        Map<String, String> names) {

    private static final ConfigOption<String> MODE = text("mode").defaultValue("observe");
    private static final ConfigOption<String> URL = text("url").noDefaultValue();
    private static final ConfigOption<String> TOKEN_FILE = text("token-file").noDefaultValue();
    private static final ConfigOption<String> POLICY = text("policy").noDefaultValue();
    private static final ConfigOption<String> JOB = text("job").noDefaultValue();
    private static final ConfigOption<Duration> TIMEOUT =
            ConfigOptions.key("timeout").durationType().defaultValue(Duration.ofMillis(200));

    private static final ConfigOption<Double> MOST_ERROR =
            ConfigOptions.key("max-forecast-error").doubleType().defaultValue(0.5);

    private static final String VERTEX = "vertex.";
    private static final Duration LONGEST = Duration.ofSeconds(1);

    /** Reads the options; null where one is missing or wrong. */
    static Settings ofOrNull(Configuration given) {
        try {
            return of(given);
        } catch (NoAnswerException error) {
            return null;
        }
    }

    /** Reads the options; {@link NoAnswerException} says which one is missing or wrong. */
    static Settings of(Configuration given) {
        Mode mode = mode(given.get(MODE));
        Duration timeout = given.get(TIMEOUT);
        if (timeout.isZero() || timeout.isNegative() || timeout.compareTo(LONGEST) > 0) {
            throw new NoAnswerException(
                    "timeout is " + timeout.toMillis() + " ms, expected 1 to 1000 ms");
        }
        String tokenFile = given.get(TOKEN_FILE);
        if (tokenFile == null) {
            throw new NoAnswerException(
                    "token-file is missing: the file with a token of serve.token_file");
        }
        Map<String, String> names = new HashMap<>();
        given.toMap()
                .forEach(
                        (key, value) -> {
                            if (key.startsWith(VERTEX)) {
                                names.put(key.substring(VERTEX.length()), value);
                            }
                        });
        return new Settings(
                mode,
                url(given.get(URL)),
                Path.of(tokenFile),
                timeout,
                given.get(POLICY),
                given.get(JOB),
                given.get(MOST_ERROR),
                Map.copyOf(names));
    }

    /** What keeps the autoscaler from going to a given parallelism, one sentence per option. */
    static List<String> missingForPolicy(Configuration given) {
        List<String> found = new ArrayList<>();
        String alignment = given.get(Autoscaler.ALIGNMENT);
        if (!alignment.equals("OFF")) {
            found.add(wanted(Autoscaler.ALIGNMENT, alignment, "OFF"));
        }
        Duration interval = given.get(Autoscaler.SCALE_DOWN_INTERVAL);
        if (interval.toMillis() > 0) {
            found.add(wanted(Autoscaler.SCALE_DOWN_INTERVAL, interval.toSeconds() + " s", "0 s"));
        }
        double factor = given.get(Autoscaler.MAX_SCALE_DOWN);
        if (factor != 1.0) {
            found.add(wanted(Autoscaler.MAX_SCALE_DOWN, factor, "1.0"));
        }
        for (ConfigOption<Boolean> option :
                List.of(Autoscaler.OBSERVED_SCALABILITY, Autoscaler.EFFECTIVENESS)) {
            if (given.get(option)) {
                found.add(wanted(option, true, "false"));
            }
        }
        double utilization = given.get(Autoscaler.UTILIZATION_TARGET);
        if (!(utilization > 0 && utilization <= 1)) {
            found.add(wanted(Autoscaler.UTILIZATION_TARGET, utilization, "more than 0, at most 1"));
        }
        boolean vetoes =
                given.get(Autoscaler.EXECUTORS).stream()
                        .map(name -> given.get(Autoscaler.executorClass(name)))
                        .anyMatch(DspGymExecutor.class.getName()::equals);
        if (!vetoes) {
            found.add(
                    Autoscaler.EXECUTORS.key()
                            + " names no executor of class "
                            + DspGymExecutor.class.getName());
        }
        return found;
    }

    /** Where to ask; {@code enacts}: whether the autoscaler goes where the answer says. */
    URI address(boolean enacts) {
        String query = "/v1/decide?enacts=" + enacts;
        if (policy != null) {
            query += "&policy=" + URLEncoder.encode(policy, StandardCharsets.UTF_8);
        }
        return url.resolve(query);
    }

    private static Mode mode(String word) {
        try {
            return Mode.valueOf(word.toUpperCase(Locale.ROOT));
        } catch (IllegalArgumentException error) {
            throw new NoAnswerException(
                    "mode is '" + word + "', expected observe, forecast or policy");
        }
    }

    private static URI url(String given) {
        try {
            URI found = URI.create(given == null ? "" : given);
            boolean isHttp = "http".equals(found.getScheme()) || "https".equals(found.getScheme());
            if (isHttp && found.getHost() != null) {
                return found;
            }
        } catch (IllegalArgumentException error) {
            // said below
        }
        throw new NoAnswerException(
                "url is " + given + ", expected one such as http://dsp-gym.gym.svc:8466");
    }

    private static String wanted(ConfigOption<?> option, Object found, String right) {
        return option.key() + " is " + found + ", expected " + right;
    }

    private static ConfigOptions.TypedConfigOptionBuilder<String> text(String key) {
        return ConfigOptions.key(key).stringType();
    }
}
