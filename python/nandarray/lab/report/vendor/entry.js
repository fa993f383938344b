// The parts of Apache ECharts that the report's charts use. build.sh bundles them into echarts.min.js.gz.

import { getInstanceByDom, init, use, version } from "echarts/core";
import { BarChart, CustomChart, HeatmapChart, LineChart, SankeyChart, ScatterChart } from "echarts/charts";
import {
  AriaComponent,
  DataZoomComponent,
  GridComponent,
  LegendComponent,
  MarkLineComponent,
  MarkPointComponent,
  TooltipComponent,
  VisualMapComponent,
} from "echarts/components";
import { SVGRenderer } from "echarts/renderers";

use([
  BarChart, CustomChart, HeatmapChart, LineChart, SankeyChart, ScatterChart,
  AriaComponent, DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, MarkPointComponent,
  TooltipComponent, VisualMapComponent,
  SVGRenderer,
]);

export { getInstanceByDom, init, version };
