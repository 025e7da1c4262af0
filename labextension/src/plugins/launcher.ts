/** New notebooks with a share: launcher cards, and a dialog that shows when it would start. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { COMMANDS } from '../commands';
import { gpuIcon } from '../icon';
import { showStartDialog } from '../start/dialog';
import { Cards } from '../start/cards';
import { createNotebook, ICreateArgs } from '../start/create';
import { followSettings } from '../settings';
import { IGpuShare } from '../tokens';
import { bundle } from '../translation';

export const launcher: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:launcher',
  description: 'New notebooks with a GPU share.',
  autoStart: true,
  requires: [IGpuShare],
  optional: [ILauncher, ISettingRegistry, ITranslator, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    gpushare: IGpuShare,
    launcher: ILauncher | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null,
    palette: ICommandPalette | null
  ) => {
    const trans = bundle(translator);
    const { commands } = app;
    commands.addCommand(COMMANDS.create, {
      label: args =>
        (args.label as string | undefined) ?? trans.__('New Notebook with a GPU Share'),
      caption: args => (args.caption as string | undefined) ?? '',
      icon: gpuIcon,
      execute: args => createNotebook(app, args as unknown as ICreateArgs),
      describedBy: {
        args: {
          type: 'object',
          properties: {
            cwd: { type: 'string' },
            kernel: { type: 'string' },
            request: { type: 'object' }
          }
        }
      }
    });
    commands.addCommand(COMMANDS.ask, {
      label: args =>
        args.isLauncher === true
          ? trans.__('GPU share…')
          : trans.__('New Notebook with a GPU Share…'),
      caption: trans.__('Choose a share, project and kernel, and check when it would start'),
      icon: gpuIcon,
      execute: async args => {
        const chosen = await showStartDialog(gpushare, app.serviceManager.kernelspecs, trans);
        return chosen === null
          ? null
          : createNotebook(app, { ...chosen, cwd: args.cwd as string | undefined });
      },
      describedBy: { args: { type: 'object', properties: { cwd: { type: 'string' } } } }
    });
    palette?.addItem({ command: COMMANDS.ask, category: trans.__('GPU share') });
    if (launcher !== null) {
      // the launcher sorts by its own translated category names
      const category = translator?.load('jupyterlab').__('Notebook') ?? 'Notebook';
      const cards = new Cards(gpushare, app.serviceManager.kernelspecs, launcher, category, trans);
      const settings = followSettings(registry, () => cards.show(settings().launcherCards));
      cards.show(settings().launcherCards);
    }
  }
};
