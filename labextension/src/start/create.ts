/** A new notebook that remembers its share from the start; the share itself is asked for when its kernel runs. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { NotebookPanel } from '@jupyterlab/notebook';
import { Contents } from '@jupyterlab/services';

import { remember } from '../notebooks';
import { KernelRequest } from '../schema';

export interface ICreateArgs {
  /** Folder; nothing: the one that the file browser shows. */
  readonly cwd?: string;
  /** Name of the kernelspec; nothing: the server's default. */
  readonly kernel?: string;
  readonly request: KernelRequest;
}

/** The choice is written before the kernel starts: a notebook asks for what it remembers as soon as its kernel is there. */
export async function createNotebook(app: JupyterFrontEnd, { cwd, kernel, request }: ICreateArgs): Promise<NotebookPanel | null> {
  const { commands, serviceManager } = app;
  const name = kernel ?? serviceManager.kernelspecs.specs?.default;
  const file: Contents.IModel = await commands.execute('docmanager:new-untitled', { path: cwd ?? '', type: 'notebook' });
  const opened = commands.execute('docmanager:open', { path: file.path, factory: 'Notebook', kernel: { name } });
  const panel = ((await opened) ?? null) as NotebookPanel | null;
  if (panel !== null) {
    await panel.context.ready;
    remember(panel, request);
    await panel.context.save();
  }
  return panel;
}
