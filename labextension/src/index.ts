/** Wires the plugins; decides nothing. */
import { ILabShell, ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { gpuIcon } from './icon';
import { GpuShare } from './model';
import { Notifier } from './notifier';
import { GpuSharePanel } from './panelWidget';
import { releaseCellsOfKilledKernels } from './relaunch';
import { IGpuShare } from './tokens';

const DOMAIN = 'jupyter-gpushare';
const SHOW = 'gpushare:show';

const model: JupyterFrontEndPlugin<IGpuShare> = {
  id: 'jupyter-gpushare:model',
  description: 'The GPU shares of my kernels, kept true.',
  autoStart: true,
  provides: IGpuShare,
  activate: () => new GpuShare()
};

const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:sidebar',
  description: 'The sidebar "GPU share", and messages about my kernels.',
  autoStart: true,
  requires: [IGpuShare],
  optional: [ITranslator, ILabShell, ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    gpushare: IGpuShare,
    translator: ITranslator | null,
    _labShell: ILabShell | null, // orders this plugin after the shell of JupyterLab; Notebook 7 has none
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const open = (path: string) => void app.commands.execute('docmanager:open', { path });
    const panel = new GpuSharePanel(gpushare, open, trans);
    app.shell.add(panel, 'right', { rank: 200 });
    restorer?.add(panel, panel.id);

    const show = () => app.shell.activateById(panel.id);
    app.commands.addCommand(SHOW, { label: trans.__('Show GPU share'), icon: gpuIcon, execute: show });
    palette?.addItem({ command: SHOW, category: trans.__('GPU share') });
    new Notifier(gpushare, show, trans);
  }
};

const relaunch: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:relaunch',
  description: 'Lets cells go that a killed kernel will never answer.',
  autoStart: true,
  requires: [IGpuShare, INotebookTracker],
  activate: (_app: JupyterFrontEnd, gpushare: IGpuShare, notebooks: INotebookTracker) =>
    releaseCellsOfKilledKernels(gpushare, notebooks)
};

export default [model, sidebar, relaunch];
export { IGpuShare } from './tokens';
