/** The dashboard: a command, an entry in palette and launcher, and its place when JupyterLab is opened again. */
import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IThemeManager, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator } from '@jupyterlab/translation';

import { DashboardContent, makeDashboard, WIDGET_ID } from '../dashboard/widget';
import { gpuIcon } from '../icon';
import { IGpuShare } from '../tokens';
import { bundle } from '../translation';

const OPEN = 'gpushare:dashboard';

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
    const tracker = new WidgetTracker<MainAreaWidget<DashboardContent>>({ namespace: WIDGET_ID });
    let widget: MainAreaWidget<DashboardContent> | null = null;
    app.commands.addCommand(OPEN, {
      label: trans.__('GPU dashboard'),
      caption: trans.__('Node pools, nodes, GPUs, queues, workloads and evictions'),
      icon: gpuIcon,
      execute: args => {
        if (widget === null || widget.isDisposed) {
          widget = makeDashboard({ gpushare, trans, themes, memory });
          void tracker.add(widget);
        }
        if (!widget.isAttached) {
          app.shell.add(widget, 'main');
        }
        widget.content.turnTo(args.view as string | undefined);
        app.shell.activateById(widget.id);
      }
    });
    void restorer?.restore(tracker, { command: OPEN, name: () => WIDGET_ID });
    palette?.addItem({ command: OPEN, category: trans.__('GPU share') });
    launcher?.add({ command: OPEN, category: trans.__('Other'), rank: 10 });
  }
};
