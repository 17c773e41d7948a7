package dspgym.operator;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;

/** A metric group that remembers its gauges, and tells where one is registered twice. */
final class Recorded extends UnregisteredMetricsGroup {

    private final String scope;
    private final ConcurrentMap<String, Gauge<?>> gauges;
    private final ConcurrentMap<String, Integer> times;

    Recorded(String scope) {
        this(scope, new ConcurrentHashMap<>(), new ConcurrentHashMap<>());
    }

    private Recorded(
            String scope,
            ConcurrentMap<String, Gauge<?>> gauges,
            ConcurrentMap<String, Integer> times) {
        this.scope = scope;
        this.gauges = gauges;
        this.times = times;
    }

    @Override
    public <T, G extends Gauge<T>> G gauge(String name, G gauge) {
        gauges.put(scope + "." + name, gauge);
        times.merge(scope + "." + name, 1, Integer::sum);
        return gauge;
    }

    @Override
    public MetricGroup addGroup(String name) {
        return new Recorded(scope + "." + name, gauges, times);
    }

    @Override
    public MetricGroup addGroup(String key, String value) {
        return new Recorded(scope + "." + key + "." + value, gauges, times);
    }

    /** Value by name; a name that was registered twice says so. */
    Map<String, Object> values() {
        Map<String, Object> found = new TreeMap<>();
        gauges.forEach(
                (name, gauge) ->
                        found.put(times.get(name) == 1 ? name : name + " TWICE", gauge.getValue()));
        return found;
    }
}
