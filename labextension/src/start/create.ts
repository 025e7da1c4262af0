/** A new notebook that remembers its share from the start; the share itself is asked for when its kernel runs. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { PartialJSONObject } from '@lumino/coreutils';

import { markChosen, METADATA_KEY } from '../notebooks';
import { KernelRequest } from '../schema';

export interface ICreateArgs {
  /** Folder; nothing: the root. */
  readonly cwd?: string;
  /** Name of the kernelspec; nothing: the server's default. */
  readonly kernel?: string;
  readonly request: KernelRequest;
}

/** The choice is in the file before anybody opens it: Notebook 7 opens it in a page of its own, which knows nothing of this one. */
export async function createNotebook(
  app: JupyterFrontEnd,
  { cwd, kernel, request }: ICreateArgs
): Promise<unknown> {
  const { contents, kernelspecs } = app.serviceManager;
  const name = kernel ?? kernelspecs.specs?.default ?? 'python3';
  const { path } = await contents.newUntitled({ path: cwd ?? '', type: 'notebook' });
  await contents.save(path, {
    type: 'notebook',
    format: 'json',
    content: notebook(name, kernelspecs.specs?.kernelspecs[name]?.display_name ?? name, request)
  });
  markChosen(path);
  return app.commands.execute('docmanager:open', { path, factory: 'Notebook', kernel: { name } });
}

/** An empty notebook, as the notebook format has it (version 4.5). */
function notebook(name: string, displayName: string, request: KernelRequest): PartialJSONObject {
  const metadata = {
    [METADATA_KEY]: request as PartialJSONObject,
    kernelspec: { name, display_name: displayName }
  };
  return { cells: [], metadata, nbformat: 4, nbformat_minor: 5 };
}
