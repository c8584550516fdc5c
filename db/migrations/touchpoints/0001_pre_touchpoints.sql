-- What a service knows of touchpoints: the projection of `touchpoint.registered`, the same in every schema that hears it.

-- `config` is the configuration of touchpoints.yaml without `storage`, which is the registry's alone. A row that was
-- carried over from an earlier table may lack what that table did not keep, until the touchpoint is registered again.
CREATE TABLE known_touchpoints (
    touchpoint_id text  PRIMARY KEY,
    revision      int   NOT NULL CHECK (revision >= 1),
    scope         text  CHECK (scope IN ('global', 'workspace')),
    config        jsonb NOT NULL
);
