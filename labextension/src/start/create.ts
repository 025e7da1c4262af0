/** Creates a notebook with a saved share, which is requested when its kernel runs. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { PartialJSONObject } from '@lumino/coreutils';

import { markChosen, METADATA_KEY } from '../notebooks';
import { KernelRequest } from '../schema';

export interface ICreateArgs {
  /** Folder; default: the root. */
  readonly cwd?: string;
  /** Name of the kernelspec; default: the server's. */
  readonly kernel?: string;
  readonly request: KernelRequest;
}

/** The share is saved before the notebook is opened: Notebook 7 opens it in another page. */
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

/** An empty notebook (nbformat 4.5). */
function notebook(name: string, displayName: string, request: KernelRequest): PartialJSONObject {
  const metadata = {
    [METADATA_KEY]: request as PartialJSONObject,
    kernelspec: { name, display_name: displayName }
  };
  return { cells: [], metadata, nbformat: 4, nbformat_minor: 5 };
}
