/** The dashboard: command, palette and launcher entries, layout restoration. */
import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import {
  ICommandPalette,
  IThemeManager,
  MainAreaWidget,
  WidgetTracker
} from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator } from '@jupyterlab/translation';

import { COMMANDS } from '../commands';
import type { DashboardContent } from '../dashboard/widget';
import { gpuIcon } from '../icon';
import { IGpuShare } from '../tokens';
import { bundle } from '../translation';

const NAMESPACE = 'jupyter-gpushare-dashboard';

export const dashboard: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:dashboard',
  description: 'The dashboard: pools, nodes, GPUs, queues, workloads, evictions.',
  autoStart: true,
  requires: [IGpuShare],
  optional: [ITranslator, ICommandPalette, ILauncher, ILayoutRestorer, IThemeManager, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    gpushare: IGpuShare,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    memory: IStateDB | null
  ) => {
    const trans = bundle(translator);
    const tracker = new WidgetTracker<MainAreaWidget<DashboardContent>>({ namespace: NAMESPACE });
    let widget: MainAreaWidget<DashboardContent> | null = null;
    app.commands.addCommand(COMMANDS.dashboard, {
      label: trans.__('GPU dashboard'),
      caption: trans.__('Node pools, nodes, GPUs, queues, workloads and evictions'),
      icon: gpuIcon,
      execute: async args => {
        // loaded when the dashboard is first opened, not with every page
        const { makeDashboard } = await import('../dashboard/widget');
        if (widget === null || widget.isDisposed) {
          widget = makeDashboard({ gpushare, trans, themes, memory });
          void tracker.add(widget);
        }
        if (!widget.isAttached) {
          app.shell.add(widget, 'main');
        }
        widget.content.showView(args.view as string | undefined);
        app.shell.activateById(widget.id);
      }
    });
    void restorer?.restore(tracker, { command: COMMANDS.dashboard, name: () => NAMESPACE });
    palette?.addItem({ command: COMMANDS.dashboard, category: trans.__('GPU share') });
    launcher?.add({ command: COMMANDS.dashboard, category: trans.__('Other'), rank: 10 });
  }
};
