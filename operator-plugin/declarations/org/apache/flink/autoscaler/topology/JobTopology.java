package org.apache.flink.autoscaler.topology;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/** Declaration: the graph of a job. */
public class JobTopology {

    private final Map<JobVertexID, VertexInfo> vertexInfos = new LinkedHashMap<>();
    private final List<JobVertexID> order = new ArrayList<>();

    public JobTopology(Collection<VertexInfo> vertices) {
        Map<JobVertexID, Map<JobVertexID, ShipStrategy>> outputs = new HashMap<>();
        for (VertexInfo vertex : vertices) {
            vertexInfos.put(vertex.getId(), vertex);
            outputs.computeIfAbsent(vertex.getId(), id -> new HashMap<>());
            vertex.getInputs()
                    .forEach(
                            (input, ship) ->
                                    outputs.computeIfAbsent(input, id -> new HashMap<>())
                                            .put(vertex.getId(), ship));
        }
        vertexInfos.forEach((id, vertex) -> vertex.setOutputs(outputs.get(id)));
        Set<JobVertexID> left = new LinkedHashSet<>(vertexInfos.keySet());
        while (!left.isEmpty()) {
            List<JobVertexID> next =
                    left.stream()
                            .filter(id -> order.containsAll(get(id).getInputs().keySet()))
                            .toList();
            order.addAll(next);
            next.forEach(left::remove);
        }
    }

    public Map<JobVertexID, VertexInfo> getVertexInfos() {
        return vertexInfos;
    }

    public List<JobVertexID> getVerticesInTopologicalOrder() {
        return order;
    }

    public VertexInfo get(JobVertexID vertex) {
        return vertexInfos.get(vertex);
    }

    public boolean isSource(JobVertexID vertex) {
        return get(vertex).getInputs().isEmpty();
    }
}
