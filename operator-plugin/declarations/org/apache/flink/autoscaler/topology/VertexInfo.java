package org.apache.flink.autoscaler.topology;

import java.util.Map;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/** Declaration: one vertex of the graph. */
public class VertexInfo {

    private final JobVertexID id;
    private final Map<JobVertexID, ShipStrategy> inputs;
    private Map<JobVertexID, ShipStrategy> outputs;
    private final int parallelism;
    private final int maxParallelism;
    private int numSourcePartitions;
    private final boolean finished;

    public VertexInfo(
            JobVertexID id,
            Map<JobVertexID, ShipStrategy> inputs,
            int parallelism,
            int maxParallelism,
            boolean finished) {
        this.id = id;
        this.inputs = inputs;
        this.parallelism = parallelism;
        this.maxParallelism = maxParallelism;
        this.finished = finished;
    }

    public JobVertexID getId() {
        return id;
    }

    public Map<JobVertexID, ShipStrategy> getInputs() {
        return inputs;
    }

    public Map<JobVertexID, ShipStrategy> getOutputs() {
        return outputs;
    }

    public void setOutputs(Map<JobVertexID, ShipStrategy> outputs) {
        this.outputs = outputs;
    }

    public int getParallelism() {
        return parallelism;
    }

    public int getMaxParallelism() {
        return maxParallelism;
    }

    public int getNumSourcePartitions() {
        return numSourcePartitions;
    }

    public void setNumSourcePartitions(int numSourcePartitions) {
        this.numSourcePartitions = numSourcePartitions;
    }

    public boolean isFinished() {
        return finished;
    }
}
