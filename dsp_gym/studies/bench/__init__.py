"""Speed, with its method: rates from several runs after a warm-up, threads stated."""
