package dspgym.operator;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/**
 * What dsp-gym answered, checked against what it was asked.
 *
 * @param parallelism guarded, of every vertex
 * @param reason of the policy
 * @param forecastPerS arrivals of all sources; NaN: there is no forecast
 * @param forecastError mean relative error of past forecasts; NaN: not known
 */
record Answer(
        Map<JobVertexID, Integer> parallelism,
        String reason,
        double forecastPerS,
        double forecastError) {

    private static final int MOST = 32768;

    /** Reads an answer; {@link NoAnswerException} says what is wrong with it. */
    static Answer of(String text, Snapshot asked) {
        Map<?, ?> found = object(parsed(text), "the answer");
        if (!"dsp-gym/decision/1".equals(found.get("schema"))) {
            throw new NoAnswerException("the answer is no dsp-gym/decision/1");
        }
        if (!asked.job().equals(found.get("job"))) {
            throw new NoAnswerException("the answer is about another job: " + found.get("job"));
        }
        if (!(found.get("t_s") instanceof Double tS) || tS != asked.tS()) {
            throw new NoAnswerException(
                    "the answer is stale: t_s " + found.get("t_s") + ", asked at " + asked.tS());
        }
        Map<JobVertexID, Integer> parallelism = new HashMap<>();
        if (!(found.get("vertices") instanceof List<?> vertices)) {
            throw new NoAnswerException("the answer has no vertices");
        }
        for (Object item : vertices) {
            Map<?, ?> vertex = object(item, "a vertex");
            JobVertexID id = asked.vertices().get(vertex.get("name"));
            Integer tasks = tasks(vertex.get("parallelism"));
            if (id == null || tasks == null || parallelism.put(id, tasks) != null) {
                throw new NoAnswerException("the answer has a vertex that is wrong: " + vertex);
            }
        }
        if (parallelism.size() != asked.vertices().size()) {
            throw new NoAnswerException("the answer leaves out vertices");
        }
        Object reason = found.get("reason");
        Object forecast = found.get("forecast");
        return new Answer(
                Map.copyOf(parallelism),
                reason == null ? "" : reason.toString(),
                ofForecast(forecast, "records_in_per_s"),
                ofForecast(forecast, "error"));
    }

    private static double ofForecast(Object forecast, String key) {
        Object found = forecast == null ? null : object(forecast, "the forecast").get(key);
        if (found == null) {
            return Double.NaN;
        }
        if (!(found instanceof Double number) || !Double.isFinite(number) || number < 0) {
            throw new NoAnswerException("the forecast is wrong: " + forecast);
        }
        return number;
    }

    private static Object parsed(String text) {
        try {
            return Json.parse(text);
        } catch (IllegalArgumentException error) {
            throw new NoAnswerException("the answer is " + error.getMessage());
        }
    }

    private static Map<?, ?> object(Object found, String what) {
        if (found instanceof Map<?, ?> map) {
            return map;
        }
        throw new NoAnswerException(what + " is no object");
    }

    private static Integer tasks(Object found) {
        boolean isWhole = found instanceof Double number && number == Math.rint(number);
        if (!isWhole || (Double) found < 1 || (Double) found > MOST) {
            return null;
        }
        return ((Double) found).intValue();
    }
}
