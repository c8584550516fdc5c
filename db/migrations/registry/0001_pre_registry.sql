-- The registry: touchpoints, prompt texts, which of them is live, what a person still has to merge, and the ledger.

CREATE TABLE touchpoints (
    touchpoint_id text        PRIMARY KEY,
    scope         text        NOT NULL CHECK (scope IN ('global', 'workspace')),
    config        jsonb       NOT NULL,
    config_sha256 text        NOT NULL,
    revision      int         NOT NULL CHECK (revision >= 1),
    registered_by text        NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now()
);

-- Immutable texts. A touchpoint's texts stay when they are no longer live, and when their repository is gone.
CREATE TABLE prompt_versions (
    id             uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    touchpoint_id  text        NOT NULL REFERENCES touchpoints,
    workspace_id   uuid,
    version_ref    text        NOT NULL,
    parts          jsonb       NOT NULL,
    content_sha256 text        NOT NULL CHECK (content_sha256 ~ '^[0-9a-f]{64}$'),
    origin         text        NOT NULL CHECK (origin IN ('initial', 'repository', 'proposal', 'manual')),
    proposal_id    uuid,
    note           text        NOT NULL DEFAULT '',
    created_by     text        NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now()
);

-- With the hash in it, since the same commit holds another text once the touchpoint's paths are configured anew.
CREATE UNIQUE INDEX prompt_versions_once ON prompt_versions
    (touchpoint_id, COALESCE(workspace_id, '00000000-0000-0000-0000-000000000000'::uuid), version_ref, content_sha256);

-- One row per activation. rolled_back_at is the moment the row stopped being live; rolled_back_from names the row
-- that a rollback took out of service. The same version_ref occurs again when a rollback puts it back.
CREATE TABLE prompt_version_registry (
    id                uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    touchpoint_id     text        NOT NULL REFERENCES touchpoints,
    version_ref       text        NOT NULL,
    storage_adapter   text        NOT NULL,
    activated_at      timestamptz NOT NULL DEFAULT now(),
    activated_by      text        NOT NULL,
    rolled_back_from  uuid        REFERENCES prompt_version_registry (id),
    rolled_back_at    timestamptz,
    file_sha256       text        NOT NULL,
    notes             text        NOT NULL DEFAULT '',
    workspace_id      uuid,
    prompt_version_id uuid        NOT NULL REFERENCES prompt_versions (id),
    proposal_id       uuid,
    CHECK (rolled_back_at >= activated_at)
);

CREATE UNIQUE INDEX idx_prompt_version_registry_one_live
    ON prompt_version_registry (touchpoint_id, COALESCE(workspace_id, '00000000-0000-0000-0000-000000000000'::uuid))
    WHERE rolled_back_at IS NULL;

CREATE INDEX prompt_version_registry_history ON prompt_version_registry (touchpoint_id, activated_at DESC);

-- What is on its way to being live: a change or a rollback that a person has to merge.
CREATE TABLE intents (
    intent_id      uuid        PRIMARY KEY,
    kind           text        NOT NULL CHECK (kind IN ('activate', 'rollback')),
    state          text        NOT NULL CHECK (state IN ('recorded', 'open', 'failed', 'confirmed', 'closed')),
    touchpoint_id  text        NOT NULL REFERENCES touchpoints,
    workspace_id   uuid,
    proposal_id    uuid,
    from_ref       text        NOT NULL,
    from_sha256    text        NOT NULL,
    to_ref         text,
    parts          jsonb       NOT NULL,
    content_sha256 text        NOT NULL,
    message        text        NOT NULL,
    branch         text,
    commit_id      text,
    diff           text,
    error_code     text,
    error          text,
    confirmed_at   text,
    created_by     text        NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    CHECK ((kind = 'rollback') = (to_ref IS NOT NULL))
);

CREATE UNIQUE INDEX intents_one_a_proposal ON intents (proposal_id) WHERE kind = 'activate';
CREATE UNIQUE INDEX intents_one_rollback ON intents
    (touchpoint_id, COALESCE(workspace_id, '00000000-0000-0000-0000-000000000000'::uuid))
    WHERE kind = 'rollback' AND state = 'open';
CREATE INDEX intents_at_work ON intents (touchpoint_id) WHERE state IN ('recorded', 'open', 'failed');

-- The end of the chain. Every writer of the ledger holds the lock of this one row until it commits.
CREATE TABLE ledger_head (
    only_one     boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
    seq          bigint      NOT NULL,
    entry_sha256 text        NOT NULL,
    at           timestamptz NOT NULL
);
INSERT INTO ledger_head (seq, entry_sha256, at) VALUES (0, repeat('0', 64), now());

-- Insert-only and hash-chained. No hash has two successors, so the chain cannot fork.
CREATE TABLE ledger_entries (
    seq             bigint      PRIMARY KEY,
    kind            text        NOT NULL,
    touchpoint_id   text        NOT NULL,
    workspace_id    uuid,
    version_ref     text,
    previous_ref    text,
    proposal_id     uuid,
    by              text        NOT NULL,
    reason          text        NOT NULL,
    at              timestamptz NOT NULL,
    detail          jsonb       NOT NULL,
    previous_sha256 text        NOT NULL UNIQUE,
    entry_sha256    text        NOT NULL UNIQUE
);
CREATE INDEX ledger_entries_of_touchpoint ON ledger_entries (touchpoint_id, seq);

-- Each edit behind the ledger's back that was told of; NULL: there was no readable text.
CREATE TABLE drift_findings (
    activation_id uuid        NOT NULL REFERENCES prompt_version_registry (id),
    found_sha256  text,
    found_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (activation_id, found_sha256)
);

-- Whether an activation helped, as the detector judged it.
CREATE TABLE judgements (
    activation_id uuid             NOT NULL,
    pattern_id    uuid,
    look          int              NOT NULL,
    touchpoint_id text             NOT NULL,
    verdict       text             NOT NULL,
    rate_ratio    double precision NOT NULL,
    low           double precision NOT NULL,
    high          double precision NOT NULL,
    judged_at     timestamptz      NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (activation_id, pattern_id, look)
);

-- A push that is sent again is answered with the ids of the first time.
CREATE TABLE idempotency_keys (
    caller         text        NOT NULL,
    key            text        NOT NULL,
    request_sha256 text        NOT NULL,
    signal_ids     uuid[]      NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (caller, key)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

-- A workspace touchpoint's rows carry a workspace, a global one's must not.
CREATE FUNCTION workspace_fits_scope() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    its_scope text;
BEGIN
    SELECT scope INTO its_scope FROM touchpoints WHERE touchpoint_id = NEW.touchpoint_id;
    IF its_scope = 'workspace' AND NEW.workspace_id IS NULL THEN
        RAISE EXCEPTION 'touchpoint % is scoped to workspaces: workspace_id is missing', NEW.touchpoint_id
            USING ERRCODE = 'check_violation';
    ELSIF its_scope = 'global' AND NEW.workspace_id IS NOT NULL THEN
        RAISE EXCEPTION 'touchpoint % is global: workspace_id must not be given', NEW.touchpoint_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER workspace_fits_scope BEFORE INSERT ON prompt_versions
    FOR EACH ROW EXECUTE FUNCTION workspace_fits_scope();
CREATE TRIGGER workspace_fits_scope BEFORE INSERT ON prompt_version_registry
    FOR EACH ROW EXECUTE FUNCTION workspace_fits_scope();
CREATE TRIGGER workspace_fits_scope BEFORE INSERT ON intents
    FOR EACH ROW EXECUTE FUNCTION workspace_fits_scope();

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON prompt_versions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ledger_entries
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE DELETE ON prompt_version_registry
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE DELETE ON ledger_head
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER scope_stays BEFORE UPDATE ON touchpoints
    FOR EACH ROW WHEN (OLD.scope <> NEW.scope) EXECUTE FUNCTION refuse_change();

-- An activation's row changes once: when it stops being live.
CREATE FUNCTION only_retired_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.rolled_back_at IS NOT NULL OR NEW.rolled_back_at IS NULL THEN
        RAISE EXCEPTION 'rolled_back_at of activation % is set once and stays', OLD.id
            USING ERRCODE = 'restrict_violation';
    END IF;
    OLD.rolled_back_at := NEW.rolled_back_at;
    IF NEW IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'only rolled_back_at of activation % may change', OLD.id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER only_retired_once BEFORE UPDATE ON prompt_version_registry
    FOR EACH ROW EXECUTE FUNCTION only_retired_once();
