-- Each workspace's rows by themselves, in the same way as everywhere. No code uses the policies of before.

DROP POLICY own_workspace ON workspaces;
DROP POLICY own_workspace ON documents;
SELECT separate_workspaces('workspaces', by_column => 'id', also_all => false);
SELECT separate_workspaces('documents', also_all => false);
