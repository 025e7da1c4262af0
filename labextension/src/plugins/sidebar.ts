/** The sidebar "GPU share", and the command that shows it. */
import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator } from '@jupyterlab/translation';

import { COMMANDS } from '../commands';
import { gpuIcon } from '../icon';
import { GpuSharePanel } from '../panelWidget';
import { IGpuShare } from '../tokens';
import { bundle } from '../translation';

export const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:sidebar',
  description: 'The sidebar "GPU share".',
  autoStart: true,
  requires: [IGpuShare],
  optional: [ITranslator, ILabShell, ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    gpushare: IGpuShare,
    translator: ITranslator | null,
    _labShell: ILabShell | null, // orders this plugin after the shell; Notebook 7 has none
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ) => {
    const trans = bundle(translator);
    const { commands } = app;
    const panel = new GpuSharePanel({
      gpushare,
      openNotebook: path => void commands.execute('docmanager:open', { path }),
      openDashboard: () => void commands.execute(COMMANDS.dashboard),
      hasDashboard: () => commands.hasCommand(COMMANDS.dashboard),
      trans
    });
    app.shell.add(panel, 'right', { rank: 200 });
    restorer?.add(panel, panel.id);
    commands.addCommand(COMMANDS.show, {
      label: trans.__('Show GPU Share'),
      caption: trans.__('Show the GPU shares of my notebooks'),
      icon: gpuIcon,
      execute: () => app.shell.activateById(panel.id),
      describedBy: { args: { type: 'object', properties: {} } }
    });
    palette?.addItem({ command: COMMANDS.show, category: trans.__('GPU share') });
  }
};
