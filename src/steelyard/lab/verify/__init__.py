"""Functional acceptance of any OpenAI-compatible server: what it offers is put to the test.

    target      which server, how hard          checks/    one module per area of claims
    offer       what it offers                  probe      what a check works with
    runner      runs the checks                 compare    two servers, token by token
    report      JSON, JUnit XML                 ties       differences that rounding explains

Judges answers, not speed (that is `lab.load`), and knows servers by their URL alone.
"""
