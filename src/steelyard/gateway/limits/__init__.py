"""How much each tenant may use: budgets per minute, requests at once, and bounds of one request.

`limiter` is the step on a request's path, `store` keeps budgets in this process, `redis_store` and
`shared_store` share them with others. Which rules a tenant has comes from the deployment file.
"""
