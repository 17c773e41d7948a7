"""Steps of the pipeline: a DataFrame in, a DataFrame out."""
