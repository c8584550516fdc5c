-- Row-level security, in one way for every table whose rows belong to a workspace.

-- `burnish.workspaces` names the workspaces that whoever is connected may see: ids with commas, or `*` for all of them.
-- The rows of those are seen, and the rows that have none. Nobody named: nothing is seen, and nothing can be written.
-- Where `also_all` is false, `*` names nobody either: such rows are only ever read for somebody.
-- FORCE, so that it holds for the owner of the tables too; migrations are run with `*`.
CREATE FUNCTION separate_workspaces(
    scoped regclass, by_column name DEFAULT 'workspace_id', also_all boolean DEFAULT true
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', scoped);
    EXECUTE format('DROP POLICY IF EXISTS workspaces_named ON %s', scoped);
    -- The setting is read once a statement, not once a row: wherever it is read it stands in a subquery of its own.
    EXECUTE format($policy$
        CREATE POLICY workspaces_named ON %1$s USING (
            (SELECT %3$L AND current_setting('burnish.workspaces', true) = '*')
            OR (%2$I IS NULL AND (SELECT coalesce(current_setting('burnish.workspaces', true), '') <> ''))
            OR %2$I = ANY ((
                SELECT string_to_array(
                    nullif(nullif(current_setting('burnish.workspaces', true), ''), '*'), ','
                )::uuid[]
            )::uuid[])
        )
    $policy$, scoped, by_column, also_all);
END
$$;

-- The same for a table whose rows belong to a row of another one: they are seen by whoever sees that one.
CREATE FUNCTION separate_with(scoped regclass, parent regclass, by_column name, of_parent name) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', scoped);
    EXECUTE format('DROP POLICY IF EXISTS workspaces_named ON %s', scoped);
    EXECUTE format($policy$
        CREATE POLICY workspaces_named ON %1$s USING (
            (SELECT current_setting('burnish.workspaces', true) = '*')
            OR EXISTS (SELECT FROM %2$s AS parent WHERE parent.%4$I = %1$s.%3$I)
        )
    $policy$, scoped, parent, by_column, of_parent);
END
$$;
