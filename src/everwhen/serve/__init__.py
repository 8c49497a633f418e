"""The page: a server that shows what runs in a browser, and takes orders from there.

    engine_loop       the thread that owns a session: epochs, and what others ask it to do between two of them
    spark_watch       a query on Spark that this program has started
    job_watch         a job elsewhere, seen through its checkpoint
    observer          looks a few times a second, and makes frames: what a browser is shown
    subscribers       hands frames to browsers; one that is slow gets fewer, and holds nobody back
    gate              who may ask: host, origin, token, size, number
    endpoints, api    what can be asked, and its description (OpenAPI)
    opened, notebook  `ew.page`: the page beside a program; `ew.live`: a session in a notebook that moves
    page/             the files that the browser gets, as they are: no build step

Nothing else imports this package but the command line, and `ew.page` and `ew.live` when they are called.
"""
