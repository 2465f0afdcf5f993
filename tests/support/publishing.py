"""Weights that tests publish, update after update."""

from counterpoise.lm.published import PublishedWeights


def publisher_of(folder, domains, weights):
    """Publish the first weights; return a function that publishes those of an update."""
    path = folder / "weights.json"

    def write(update):
        table = dict(zip(domains, weights[update], strict=True))
        PublishedWeights(table, update, 10 * update).write(path)
        return path

    write(0)
    return write


def read_until(stream, error):
    """Return what a stream yields before an error; its end is none."""
    found = []
    try:
        while True:
            found.append(next(stream))
    except error:
        return found
