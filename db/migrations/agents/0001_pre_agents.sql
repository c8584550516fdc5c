-- Agents: their packs with every version of them, what they may use, and pushes to the engine whose end is not known.

-- `parameters` is json, not jsonb: a pack's bytes are kept as they were given, with the order of its keys.
CREATE TABLE agents (
    id                 uuid        PRIMARY KEY,
    workspace_id       uuid        NOT NULL,
    organization_id    text        NOT NULL CHECK (organization_id <> ''),
    company_id         text        NOT NULL CHECK (company_id <> ''),
    parameters         json        NOT NULL,
    vendor_ai_agent_id text,
    lock_version       int         NOT NULL DEFAULT 1 CHECK (lock_version >= 1),
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX agents_of_workspace ON agents (workspace_id, company_id);

-- One row a save. A trigger keeps them from being changed; they go with their agent.
CREATE TABLE agent_versions (
    agent_id     uuid        NOT NULL REFERENCES agents ON DELETE CASCADE,
    version      int         NOT NULL CHECK (version >= 1),
    workspace_id uuid        NOT NULL,
    action       text        NOT NULL CHECK (action IN ('create', 'update', 'revert')),
    actor        text        NOT NULL,
    before       json,
    after        json        NOT NULL,
    pack_sha256  text        NOT NULL CHECK (pack_sha256 ~ '^[0-9a-f]{64}$'),
    refine       jsonb,
    at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (agent_id, version),
    CHECK ((action = 'create') = (before IS NULL))
);

CREATE FUNCTION a_version_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a version of an agent is never changed' USING ERRCODE = 'check_violation';
END
$$;
CREATE TRIGGER stays BEFORE UPDATE ON agent_versions FOR EACH ROW EXECUTE FUNCTION a_version_stays();

CREATE TABLE agent_tools (
    workspace_id uuid  NOT NULL,
    company_id   text  NOT NULL,
    name         text  NOT NULL,
    tool_id      text,
    description  text  NOT NULL DEFAULT '',
    args         json  NOT NULL DEFAULT '{}',
    PRIMARY KEY (workspace_id, company_id, name)
);
CREATE UNIQUE INDEX agent_tools_by_id ON agent_tools (workspace_id, company_id, tool_id) WHERE tool_id IS NOT NULL;

CREATE TABLE agent_knowledge (
    workspace_id uuid NOT NULL,
    company_id   text NOT NULL,
    kb_id        text NOT NULL,
    name         text NOT NULL DEFAULT '',
    PRIMARY KEY (workspace_id, company_id, kb_id)
);

-- A push that began and whose end nobody saw: the sweep gives the engine what is committed. Written before the push by
-- itself, removed in the transaction of the save.
CREATE TABLE agent_pushes (
    id           uuid        PRIMARY KEY,
    agent_id     uuid        NOT NULL,
    workspace_id uuid        NOT NULL,
    stores       text[]      NOT NULL DEFAULT '{}',
    began_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX agent_pushes_oldest ON agent_pushes (began_at);

CREATE TABLE flags (
    code       text        PRIMARY KEY,
    enabled    boolean     NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    changed_by text        NOT NULL
);

SELECT separate_workspaces('agents');
SELECT separate_workspaces('agent_versions');
SELECT separate_workspaces('agent_tools');
SELECT separate_workspaces('agent_knowledge');
SELECT separate_workspaces('agent_pushes');
