package dspgym.flink;

import java.util.Map;
import java.util.TreeMap;
import java.util.function.BiConsumer;

/**
 * The entry point: builds the job that {@code --program} names and submits it.
 *
 * <p>Every argument is also a global job parameter, so that whoever finds the job running can read
 * what it was submitted with. The README lists the arguments.
 */
public final class Main {

    private static final Map<String, BiConsumer<JobGraph, Arguments>> PROGRAMS = new TreeMap<>(Map.of(
            "q1", NexmarkJobs::q1,
            "q2", NexmarkJobs::q2,
            "q3", NexmarkJobs::q3,
            "q5", NexmarkJobs::q5,
            "q8", NexmarkJobs::q8,
            "q11", NexmarkJobs::q11,
            "wordcount", WordCountJob::build,
            "micro-read", (graph, arguments) -> MicroJob.build(graph, arguments, MicroJob.Access.READ),
            "micro-write", (graph, arguments) -> MicroJob.build(graph, arguments, MicroJob.Access.WRITE),
            "micro-update", (graph, arguments) -> MicroJob.build(graph, arguments, MicroJob.Access.UPDATE)));

    private Main() {}

    public static void main(String[] args) throws Exception {
        Arguments arguments = new Arguments(args);
        String program = arguments.text("program");
        JobGraph graph = new JobGraph(arguments);
        build(program, graph, arguments);
        graph.execute(arguments.text("job-name", "dsp-gym-" + program));
    }

    /** Adds the vertices of a program to a graph. */
    static void build(String program, JobGraph graph, Arguments arguments) {
        BiConsumer<JobGraph, Arguments> build = PROGRAMS.get(program);
        if (build == null) {
            throw new IllegalArgumentException(
                    "--program " + program + " is unknown; choose one of " + PROGRAMS.keySet());
        }
        build.accept(graph, arguments);
    }
}
